//! [`BlobPart`]: a stretch of a blob and its connection: idle, resting after a failure, opening, reading, done. Holds
//! the bytes until their turn. Decides nothing: `blob` decides what is opened, retried or given up, and when; and when
//! a connection that delivers next to nothing gets a [`SpareConnection`] in addition.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use url::Url;

use crate::bandwidth::BandwidthShare;
use crate::error::Cause;
use crate::http_client::HttpResponse;
use crate::range_request::{OpenFuture, RangeBody, ReadFuture, read};
use crate::spare::{SpareConnection, SpareState};

/// The memory and the permit that a part holds for as long as it has a connection or bytes.
pub(crate) struct RangeLease {
    /// Memory for its bytes.
    pub(crate) _memory: Box<dyn Send + Sync>,
    /// The right to a connection.
    pub(crate) connection: Option<OwnedSemaphorePermit>,
}

/// A stretch of a blob, with its connection and the bytes that wait for their turn.
pub(crate) struct BlobPart {
    /// Offset of the next byte.
    pub(crate) from: u64,
    /// The byte after its last one.
    pub(crate) end: u64,
    /// True if it is asked for with its end.
    pub(crate) closed: bool,
    /// Bytes that arrived and were not taken.
    pub(crate) queue: VecDeque<Bytes>,
    /// Bytes that its connection delivered from beyond its end.
    surplus: Option<Bytes>,
    pub(crate) held: Option<RangeLease>,
    /// Failures since it last received bytes.
    pub(crate) failures: u32,
    /// The host that was asked last.
    pub(crate) host: usize,
    state: PartState,
    /// Another connection for the same.
    spare: Option<Box<SpareConnection>>,
    /// The right to the connection, where it was a spare one.
    connection: Option<OwnedSemaphorePermit>,
    /// Time for which the limit of bandwidth held it up.
    held_up: Duration,
}

enum PartState {
    Idle,
    Resting(Pin<Box<Sleep>>),
    /// The missing bytes began at `need` when they were asked for.
    Opening {
        open: OpenFuture,
        need: u64,
    },
    Reading {
        read: ReadFuture,
        skip: u64,
        until: u64,
    },
    /// A piece is here, and may be taken in when the limit of bandwidth lets it.
    Throttled {
        turn: BoxFuture<'static, ()>,
        since: Instant,
        piece: Box<ThrottledPiece>,
    },
    Done,
}

/// Bytes that arrived, with the connection on which more will.
struct ThrottledPiece {
    response: HttpResponse,
    bytes: Bytes,
    skip: u64,
    until: u64,
}

/// An event of a part.
pub(crate) enum PartEvent {
    /// The head of its answer is here.
    Answered { after: Duration, target: Option<Url>, ranges: bool },
    /// So many bytes arrived.
    Bytes(u64),
    /// The second connection took the place of the first.
    Replaced,
    /// The second connection failed.
    SpareFailed(Cause),
    /// More bytes than the blob has arrived.
    TooMuch,
    /// The connection failed.
    Failed(Cause),
}

impl BlobPart {
    pub(crate) fn new(from: u64, end: u64, closed: bool, held: Option<RangeLease>) -> Self {
        Self {
            from,
            end,
            closed,
            queue: VecDeque::new(),
            surplus: None,
            held,
            failures: 0,
            host: 0,
            state: PartState::Idle,
            spare: None,
            connection: None,
            held_up: Duration::ZERO,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, PartState::Idle)
    }

    /// Returns true if it has, or asks for, a connection.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, PartState::Opening { .. } | PartState::Reading { .. } | PartState::Throttled { .. })
    }

    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, PartState::Reading { .. } | PartState::Throttled { .. })
    }

    /// Returns true if bytes are expected from the network, and not kept back by our own limit.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, PartState::Reading { .. })
    }

    /// Returns, and resets, the time for which the limit of bandwidth held it up.
    pub(crate) fn take_throttled_time(&mut self) -> Duration {
        std::mem::take(&mut self.held_up)
    }

    /// Returns the time at which the second connection was asked for.
    pub(crate) fn spare_since(&self) -> Option<Instant> {
        self.spare.as_ref().map(|spare| spare.since)
    }

    /// Adds a second connection that asks for the missing bytes.
    pub(crate) fn hedge(&mut self, spare: SpareConnection) {
        self.spare = Some(Box::new(spare));
    }

    pub(crate) fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Returns true if it begins at `start`, none of its bytes are here, and no answer has begun.
    pub(crate) fn is_untouched(&self, start: u64) -> bool {
        self.from == start && self.queue.is_empty() && !self.is_reading() && !self.is_done()
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, PartState::Done)
    }

    /// Returns the position at which its connection ends.
    pub(crate) fn until(&self) -> Option<u64> {
        match &self.state {
            PartState::Reading { until, .. } => Some(*until),
            PartState::Throttled { piece, .. } => Some(piece.until),
            _ => None,
        }
    }

    /// Opens a connection to a host of the session.
    pub(crate) fn open(&mut self, open: OpenFuture, host: usize) {
        self.host = host;
        self.state = PartState::Opening { open, need: self.from };
    }

    pub(crate) fn rest(&mut self, wait: Duration) {
        self.state = PartState::Resting(Box::pin(tokio::time::sleep(wait)));
    }

    /// Drops its connections. The bytes that arrived stay.
    pub(crate) fn stop(&mut self) {
        self.state = PartState::Idle;
        self.surplus = None;
        self.spare = None;
        self.connection = None;
    }

    /// Drops its connections and the permits of them.
    pub(crate) fn done(&mut self) {
        self.state = PartState::Done;
        self.surplus = None;
        self.spare = None;
        self.connection = None;
        if let Some(held) = &mut self.held {
            held.connection = None;
        }
    }

    /// Moves its end behind the following stretch. Returns the number of bytes of it that are here already.
    pub(crate) fn extend(&mut self, end: u64) -> u64 {
        self.end = end;
        self.surplus.take().map_or(0, |bytes| self.push(bytes))
    }

    /// Queues bytes up to its end and keeps the rest as surplus. Returns the number queued.
    fn push(&mut self, mut bytes: Bytes) -> u64 {
        let room = usize::try_from(self.end - self.from).unwrap_or(usize::MAX);
        if bytes.len() > room {
            self.surplus = Some(bytes.split_off(room));
        }
        let came = bytes.len() as u64;
        self.from += came;
        if came > 0 {
            self.queue.push_back(bytes);
        }
        came
    }

    /// Polls the connections for an event. `size` is that of the blob, after which no byte may follow.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        size: u64,
        idle: Duration,
        share: Option<&BandwidthShare>,
    ) -> Poll<PartEvent> {
        if let Poll::Ready(came) = self.poll_first(cx, size, idle, share) {
            return Poll::Ready(came);
        }
        let Some(spare) = &mut self.spare else { return Poll::Pending };
        match std::task::ready!(spare.poll(cx, self.from, idle)) {
            Ok(won) => {
                self.connection = self.spare.take().and_then(|spare| spare.connection);
                let piece =
                    Box::new(ThrottledPiece { response: won.response, bytes: won.bytes, skip: 0, until: won.until });
                // Taken in at the next poll.
                let (turn, since) = (turn(share, &piece.bytes), Instant::now());
                self.state = PartState::Throttled { turn, since, piece };
                Poll::Ready(PartEvent::Replaced)
            }
            Err(cause) => {
                self.spare = None;
                Poll::Ready(PartEvent::SpareFailed(cause))
            }
        }
    }

    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        size: u64,
        idle: Duration,
        share: Option<&BandwidthShare>,
    ) -> Poll<PartEvent> {
        loop {
            match &mut self.state {
                PartState::Idle | PartState::Done => return Poll::Pending,
                PartState::Resting(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    self.state = PartState::Idle;
                    // The caller opens idle parts next.
                    return Poll::Ready(PartEvent::Bytes(0));
                }
                PartState::Opening { open, need } => match std::task::ready!(open.as_mut().poll(cx)) {
                    Ok(RangeBody { response, skip, until, after, target, ranges }) => {
                        // Bytes that another connection has delivered since.
                        let skip = skip + self.from - *need;
                        self.state = PartState::Reading { read: read(response, idle), skip, until };
                        return Poll::Ready(PartEvent::Answered { after, target, ranges });
                    }
                    Err(cause) => return Poll::Ready(self.broke(cause)),
                },
                PartState::Reading { read: reading, skip, until } => {
                    if self.from == self.end && (*until > self.end || self.end < size) {
                        // `blob` decides whether to continue.
                        return Poll::Pending;
                    }
                    if self.end == size && self.surplus.is_some() {
                        return Poll::Ready(PartEvent::TooMuch);
                    }
                    let (response, came) = std::task::ready!(reading.as_mut().poll(cx));
                    match came {
                        Ok(Some(bytes)) => {
                            let piece = ThrottledPiece { response, bytes, skip: *skip, until: *until };
                            if share.is_some() {
                                let (turn, since) = (turn(share, &piece.bytes), Instant::now());
                                self.state = PartState::Throttled { turn, since, piece: Box::new(piece) };
                            } else if let Some(came) = self.take_in(piece, size, idle) {
                                return Poll::Ready(came);
                            }
                        }
                        // All is here; how the connection ends is of no interest.
                        Ok(None) | Err(_) if self.from == self.end => {
                            self.done();
                            return Poll::Ready(PartEvent::Bytes(0));
                        }
                        Ok(None) => return Poll::Ready(self.broke(Cause::Truncated { got: self.from, size })),
                        Err(cause) => return Poll::Ready(self.broke(cause)),
                    }
                }
                PartState::Throttled { turn, since, .. } => {
                    std::task::ready!(turn.as_mut().poll(cx));
                    self.held_up += since.elapsed();
                    let PartState::Throttled { piece, .. } = std::mem::replace(&mut self.state, PartState::Idle) else {
                        return Poll::Pending;
                    };
                    if let Some(came) = self.take_in(*piece, size, idle) {
                        return Poll::Ready(came);
                    }
                }
            }
        }
    }

    /// Queues the bytes of a piece, and reads on.
    fn take_in(&mut self, piece: ThrottledPiece, size: u64, idle: Duration) -> Option<PartEvent> {
        let ThrottledPiece { response, mut bytes, mut skip, until } = piece;
        let skipped = skip.min(bytes.len() as u64);
        skip -= skipped;
        bytes.advance(usize::try_from(skipped).expect("no more than the chunk's length"));
        self.state = PartState::Reading { read: read(response, idle), skip, until };
        if bytes.is_empty() {
            return None;
        }
        if self.end == size && bytes.len() as u64 > size - self.from {
            return Some(PartEvent::TooMuch);
        }
        self.failures = 0;
        Some(PartEvent::Bytes(self.push(bytes)))
    }

    /// Replaces a connection that broke by the second one, where there is one.
    fn broke(&mut self, cause: Cause) -> PartEvent {
        self.state = PartState::Idle;
        let Some(mut spare) = self.spare.take() else { return PartEvent::Failed(cause) };
        self.connection = spare.connection.take();
        self.state = match spare.state {
            SpareState::Opening { open, need } => PartState::Opening { open, need },
            SpareState::Reading { read, at, until } => {
                PartState::Reading { read, skip: self.from.saturating_sub(at), until }
            }
        };
        tracing::debug!(error = %cause, from = self.from, "stalled connection broke");
        PartEvent::Replaced
    }
}

/// Waits until the limit of bandwidth lets bytes be taken in.
fn turn(share: Option<&BandwidthShare>, bytes: &Bytes) -> BoxFuture<'static, ()> {
    let (share, length) = (share.cloned(), bytes.len() as u64);
    async move {
        if let Some(share) = share {
            share.take(length).await;
        }
    }
    .boxed()
}
