//! [`Part`]: a stretch of a blob and the connection that brings it: not asked for yet, resting after a failure, opening,
//! reading, done. It holds what came until its turn. It decides nothing: `blob` says what is opened, tried again or given
//! up, and when. A connection that brings less than the others would be doubled here; at present it is only given up when
//! nothing comes from it at all.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use url::Url;

use crate::error::Cause;
use crate::transport::next_chunk;

/// An answer that brings bytes.
pub(crate) struct Body {
    pub(crate) response: reqwest::Response,
    /// Bytes that come and are there already.
    pub(crate) skip: u64,
    /// Where what it brings ends in the blob.
    pub(crate) until: u64,
    /// How long the answer took to begin.
    pub(crate) after: Duration,
    /// Where it came from in the end, if that is another origin.
    pub(crate) target: Option<Url>,
    /// Whether the host does ranges.
    pub(crate) ranges: bool,
}

/// What a part holds for as long as it has a connection or bytes.
pub(crate) struct Held {
    /// Memory for its bytes.
    pub(crate) _memory: Box<dyn Send + Sync>,
    /// The right to a connection.
    pub(crate) connection: Option<OwnedSemaphorePermit>,
}

/// See the file's head.
pub(crate) struct Part {
    /// The next byte to come.
    pub(crate) from: u64,
    /// The byte after its last one.
    pub(crate) end: u64,
    /// Whether it is asked for with its end.
    pub(crate) closed: bool,
    /// What came and was not taken.
    pub(crate) queue: VecDeque<Bytes>,
    /// What came on its connection and lies behind its end.
    surplus: Option<Bytes>,
    pub(crate) held: Option<Held>,
    /// Failures since it last brought something.
    pub(crate) failures: u32,
    state: State,
}

type Read = BoxFuture<'static, (reqwest::Response, Result<Option<Bytes>, Cause>)>;
type Open = BoxFuture<'static, Result<Body, Cause>>;

enum State {
    Idle,
    Resting(Pin<Box<Sleep>>),
    Opening(Open),
    Reading { read: Read, skip: u64, until: u64 },
    Done,
}

/// What happened to a part.
pub(crate) enum Came {
    /// Its answer began.
    Answered { after: Duration, target: Option<Url>, ranges: bool },
    /// So many bytes.
    Bytes(u64),
    /// More bytes than the blob has.
    TooMuch,
    /// Something broke.
    Failed(Cause),
}

impl Part {
    pub(crate) fn new(from: u64, end: u64, closed: bool, held: Option<Held>) -> Self {
        let queue = VecDeque::new();
        Self { from, end, closed, queue, surplus: None, held, failures: 0, state: State::Idle }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether it has, or asks for, a connection.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Opening(_) | State::Reading { .. })
    }

    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading { .. })
    }

    /// Whether nothing of it is here, and no answer has begun.
    pub(crate) fn is_untouched(&self, start: u64) -> bool {
        self.from == start && self.queue.is_empty() && !matches!(self.state, State::Reading { .. } | State::Done)
    }

    /// Whether nothing more is to come from its connection.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// How far its connection goes.
    pub(crate) fn until(&self) -> Option<u64> {
        match self.state {
            State::Reading { until, .. } => Some(until),
            _ => None,
        }
    }

    pub(crate) fn open(&mut self, open: Open) {
        self.state = State::Opening(open);
    }

    /// Reads from an answer that is here already.
    pub(crate) fn read(&mut self, body: Body, idle: Duration) {
        self.state = State::Reading { read: read(body.response, idle), skip: body.skip, until: body.until };
    }

    pub(crate) fn rest(&mut self, wait: Duration) {
        self.state = State::Resting(Box::pin(tokio::time::sleep(wait)));
    }

    /// Lets its connection go.
    pub(crate) fn done(&mut self) {
        self.state = State::Done;
        self.surplus = None;
        if let Some(held) = &mut self.held {
            held.connection = None;
        }
    }

    /// Takes over what lies behind it.
    pub(crate) fn extend(&mut self, end: u64) -> u64 {
        self.end = end;
        self.surplus.take().map_or(0, |bytes| self.push(bytes))
    }

    /// Takes bytes in up to the end; the rest waits behind it.
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

    /// Looks whether something happened. `size` is the blob's, after which nothing may come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, size: u64, idle: Duration) -> Poll<Came> {
        loop {
            match &mut self.state {
                State::Idle | State::Done => return Poll::Pending,
                State::Resting(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    self.state = State::Idle;
                    // Whoever polls looks for idle parts next.
                    return Poll::Ready(Came::Bytes(0));
                }
                State::Opening(open) => match std::task::ready!(open.as_mut().poll(cx)) {
                    Ok(body) => {
                        let (after, target, ranges) = (body.after, body.target.clone(), body.ranges);
                        self.read(body, idle);
                        return Poll::Ready(Came::Answered { after, target, ranges });
                    }
                    Err(cause) => {
                        self.state = State::Idle;
                        return Poll::Ready(Came::Failed(cause));
                    }
                },
                State::Reading { read: reading, skip, until } => {
                    if self.from == self.end && (*until > self.end || self.end < size) {
                        // `blob` decides whether it goes on.
                        return Poll::Pending;
                    }
                    if self.end == size && self.surplus.is_some() {
                        return Poll::Ready(Came::TooMuch);
                    }
                    let (response, came) = std::task::ready!(reading.as_mut().poll(cx));
                    match came {
                        Ok(Some(mut bytes)) => {
                            let skipped = (*skip).min(bytes.len() as u64);
                            *skip -= skipped;
                            bytes.advance(usize::try_from(skipped).expect("no more than the chunk's length"));
                            *reading = read(response, idle);
                            if bytes.is_empty() {
                                continue;
                            }
                            if self.end == size && bytes.len() as u64 > size - self.from {
                                return Poll::Ready(Came::TooMuch);
                            }
                            self.failures = 0;
                            let came = self.push(bytes);
                            return Poll::Ready(Came::Bytes(came));
                        }
                        // All is here; how the connection ends is of no interest.
                        Ok(None) | Err(_) if self.from == self.end => {
                            self.done();
                            return Poll::Ready(Came::Bytes(0));
                        }
                        Ok(None) => {
                            self.state = State::Idle;
                            return Poll::Ready(Came::Failed(Cause::Truncated { got: self.from, size }));
                        }
                        Err(cause) => {
                            self.state = State::Idle;
                            return Poll::Ready(Came::Failed(cause));
                        }
                    }
                }
            }
        }
    }
}

fn read(mut response: reqwest::Response, idle: Duration) -> Read {
    async move {
        let came = next_chunk(&mut response, idle).await;
        (response, came)
    }
    .boxed()
}
