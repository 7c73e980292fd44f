//! [`BlobStream`]: the bytes of one blob, in order, resumed by `Range` where the transfer broke off, at the next host
//! where one fails for good. Where the line is the bottleneck, later ranges are fetched over further connections meanwhile,
//! as closed ranges that wait in memory for their turn; all of it happens inside [`BlobStream::next`], so that dropping
//! the stream ends everything. Counts bytes against the descriptor and hashes nothing: the caller has a thread for
//! that.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use oci::{Descriptor, Digest};
use tokio::time::Instant;
use url::Url;

use crate::error::{Cause, HostFailure, RegistryError};
use crate::pace::{ConnectionPace, HostObservation};
use crate::part::{BlobPart, PartEvent};
use crate::redact;
use crate::retry::HostAttempts;
use crate::session::PullSession;
use crate::spare::SpareConnection;
use crate::stall::StallWatch;

/// Bytes since the last failure that count as progress, which makes the retry budget whole again.
const PROGRESS: u64 = 64 << 10;
/// Failures of further connections after which there are fewer of them.
const TROUBLES: u32 = 3;

/// A blob on its way.
pub struct BlobStream {
    pub(super) session: Arc<PullSession>,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) asked: String,
    pub(super) attempts: HostAttempts,
    /// Ranges of the blob, in order, from the first byte that was not returned yet. The first one is the
    /// head: its bytes are returned as they arrive, and its failures count.
    pub(super) parts: VecDeque<BlobPart>,
    /// Events of parts that are not handled yet.
    events: VecDeque<(usize, PartEvent)>,
    /// Where the last part ends.
    pub(super) frontier: u64,
    /// Bytes handed out.
    pub(super) offset: u64,
    /// Bytes received since the last failure.
    since_failure: u64,
    /// This host's answers to ranges are wrong: ask it for all and skip.
    pub(super) no_ranges: Option<usize>,
    pub(super) pace: ConnectionPace,
    /// The watch over the bytes that the head's connection delivers.
    pub(super) watch: StallWatch,
    /// True if the host's answer to the head announces support for ranges.
    does_ranges: bool,
    /// Where the host redirected to, until that is refused.
    pub(super) target: Option<Url>,
    /// True if bytes were received over more than one connection.
    ranged: bool,
    /// True once bytes received over several connections were wrong.
    distrusted: bool,
    /// Failures of other parts than the head.
    troubles: u32,
    pub(super) finished: bool,
}

impl BlobStream {
    pub(crate) async fn open(
        session: Arc<PullSession>,
        descriptor: &Descriptor,
        asked: String,
        from: u64,
    ) -> Result<Self, RegistryError> {
        let order = session.order(false);
        if order.is_empty() {
            return Err(session.no_capable_host(&asked, false));
        }
        let pace = ConnectionPace::new(session.client.options().ranges.clone(), Instant::now());
        let watch = StallWatch::new(session.client.options().stall.clone());
        let mut stream = Self {
            session,
            digest: descriptor.digest.clone(),
            size: descriptor.size,
            asked,
            attempts: HostAttempts::new(order),
            parts: VecDeque::new(),
            events: VecDeque::new(),
            frontier: 0,
            offset: from,
            since_failure: 0,
            no_ranges: None,
            pace,
            watch,
            does_ranges: false,
            target: None,
            ranged: false,
            distrusted: false,
            troubles: 0,
            finished: false,
        };
        stream.begin();
        while !stream.parts[0].is_reading() {
            stream.schedule();
            stream.happen().await?;
        }
        Ok(stream)
    }

    /// Size of the blob, as its descriptor gives it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the host that sends the bytes at present.
    #[must_use]
    pub fn host(&self) -> &str {
        self.session.host_label(self.attempts.host()).name
    }

    /// Returns the next piece, or `None` after exactly [`size`](Self::size) bytes, those before the first piece included.
    ///
    /// # Errors
    /// [`RegistryError`], when every host has used up its attempts, or when more bytes arrive than there should be.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let entered = Instant::now();
        let mut looked = self.parts.len() < 2;
        loop {
            if !looked {
                // The other connections are served even while the head has enough.
                looked = true;
                poll_fn(|cx| Poll::Ready(self.poll_parts(cx))).await;
                self.settle()?;
            }
            if let Some(bytes) = self.parts.front_mut().and_then(|head| head.queue.pop_front()) {
                self.offset += bytes.len() as u64;
                let held_up = self.parts.front_mut().map(BlobPart::take_throttled_time).unwrap_or_default();
                self.pace.waited(entered.elapsed().saturating_sub(held_up));
                return Ok(Some(bytes));
            }
            self.schedule();
            if self.finished {
                return Ok(None);
            }
            // The part that is the head now may have all its bytes here, so that nothing more happens to it.
            if self.parts.front().is_none_or(|head| head.queue.is_empty()) {
                self.happen().await?;
            }
        }
    }

    /// Discards all received bytes, because the caller found them to be wrong. The next call of [`next`](Self::next) begins
    /// at the first byte from the next host. Bytes that were received over several connections are requested once more from the
    /// same host, over one.
    ///
    /// # Errors
    /// Of kind `InvalidContent`, when there is no other host.
    pub fn start_over(&mut self, why: &str) -> Result<(), RegistryError> {
        self.offset = 0;
        self.since_failure = 0;
        self.finished = false;
        self.target = None;
        self.begin();
        if self.ranged && !self.distrusted {
            self.distrusted = true;
            self.learn(HostObservation::Ceiling(1));
            self.pace.limit(1);
            tracing::debug!(
                request = self.asked,
                host = self.host(),
                reason = %why,
                "range requests returned wrong bytes, fetching the blob in one request"
            );
            return Ok(());
        }
        self.pace.limit(1);
        // Wrong content is never asked for again at the same host.
        self.session.failure(&mut self.attempts, Cause::Content(redact::text(why, 300)), &self.asked).map(drop)
    }

    /// Begins with one part for all that is missing, without a connection.
    fn begin(&mut self) {
        self.events.clear();
        self.parts.clear();
        self.parts.push_back(BlobPart::new(self.offset.min(self.size), self.size, false, None));
        self.frontier = self.size;
    }

    /// Waits for an event of any part and handles it, or until the head's connection has delivered next to nothing for
    /// too long.
    async fn happen(&mut self) -> Result<(), RegistryError> {
        let is_watched = |stream: &Self| stream.parts.front().is_some_and(BlobPart::is_waiting);
        if !is_watched(self) {
            poll_fn(|cx| if self.poll_parts(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
            return self.settle();
        }
        let (entered, left) = (Instant::now(), self.watch.left());
        let something = poll_fn(|cx| if self.poll_parts(cx) { Poll::Ready(()) } else { Poll::Pending });
        let came = tokio::time::timeout(left, something).await.is_ok();
        if is_watched(self) {
            self.watch.waited(entered.elapsed());
        }
        if !came {
            self.replace();
        }
        self.settle()
    }

    /// Polls every part. Returns true if there are events to handle.
    fn poll_parts(&mut self, cx: &mut Context<'_>) -> bool {
        let patience = self.session.patience(&self.attempts);
        let idle = patience.unwrap_or_else(|| self.session.idle_timeout());
        let (size, share) = (self.size, self.session.share.limited());
        for (n, part) in self.parts.iter_mut().enumerate() {
            if let Poll::Ready(came) = part.poll(cx, size, idle, share) {
                self.events.push_back((n, came));
            }
        }
        !self.events.is_empty()
    }

    /// Handles the events of the parts.
    fn settle(&mut self) -> Result<(), RegistryError> {
        while let Some((n, came)) = self.events.pop_front() {
            match came {
                PartEvent::Bytes(bytes) => {
                    self.pace.received(bytes);
                    self.session.count(self.parts[n].host, bytes);
                    self.since_failure += bytes;
                    self.ranged |= n > 0 && bytes > 0;
                    if n == 0 {
                        self.watch.received(bytes);
                    }
                }
                PartEvent::Replaced => {
                    tracing::debug!(
                        request = self.asked,
                        host = self.host(),
                        at = self.parts[n].from,
                        "replaced a slow connection"
                    );
                    self.watch.replaced();
                }
                PartEvent::SpareFailed(cause) => {
                    tracing::debug!(request = self.asked, host = self.host(), error = %cause, "second connection failed");
                    self.watch.attempt_failed();
                }
                PartEvent::Answered { after, target, ranges } => {
                    if n == 0 {
                        self.does_ranges = ranges;
                        self.watch.begin();
                    }
                    self.pace.answered(after);
                    self.target = target;
                    if !ranges {
                        self.pace.limit(1);
                    }
                }
                PartEvent::TooMuch if n == 0 => return Err(self.too_long()),
                PartEvent::TooMuch => self.trouble(n, Cause::Range("a range that goes on behind the blob".into())),
                PartEvent::Failed(cause) if n == 0 => self.head_failed(cause)?,
                PartEvent::Failed(cause) => self.trouble(n, cause),
            }
        }
        Ok(())
    }

    /// The head's connection delivers next to nothing: another connection asks for the same bytes, and replaces it when
    /// it has overtaken it.
    fn replace(&mut self) {
        if let Some(since) = self.parts[0].spare_since() {
            if since.elapsed() >= self.watch.window() {
                self.parts[0].drop_spare();
                self.watch.attempt_failed();
            } else {
                self.watch.begin();
            }
            return;
        }
        if !self.watch.is_stalled() {
            return;
        }
        if let Some(after) = self.session.patience(&self.attempts) {
            // Another connection would reach the same peers. Another host continues at the same byte.
            self.parts.truncate(1);
            self.parts[0].stop();
            self.frontier = self.parts[0].end;
            self.events.push_back((0, PartEvent::Failed(Cause::Idle { after, what: "too few bytes a second" })));
            return;
        }
        let host = self.attempts.host();
        let from = self.parts[0].from;
        let able = self.does_ranges && self.no_ranges != Some(host) && from < self.parts[0].end;
        let Some(connection) = self.session.ranges(host).connection().filter(|_| able) else {
            return self.watch.attempt_failed();
        };
        tracing::debug!(request = self.asked, host = self.host(), from, "connection stalled, opening a second one");
        // The registry may know of another place that has it.
        let open = self.ask(&self.parts[0], from == 0 && !self.parts[0].closed, None);
        self.parts[0].hedge(SpareConnection::new(open, from, connection));
        self.watch.begin();
    }

    fn too_long(&mut self) -> RegistryError {
        self.parts.clear();
        self.frontier = self.size;
        self.finished = true;
        let cause = Cause::Content(format!("more than the {} bytes of the descriptor", self.size));
        let who = self.session.host_label(self.attempts.host());
        let failure = HostFailure { host: who.name.to_owned(), upstream: who.upstream, attempts: 1, cause };
        RegistryError::new(&*self.asked, vec![failure])
    }

    fn head_failed(&mut self, cause: Cause) -> Result<(), RegistryError> {
        let host = self.attempts.host();
        self.target = None;
        if matches!(cause, Cause::Range(_)) {
            self.no_ranges = Some(host);
            self.learn(HostObservation::Ceiling(1));
            self.pace.limit(1);
        } else if self.active() > 0 && is_too_many(&cause) {
            self.fewer();
        }
        self.watch.begin();
        if self.since_failure >= PROGRESS {
            self.attempts.progressed();
        }
        self.since_failure = 0;
        if let Some(wait) = self.session.failure(&mut self.attempts, cause, &self.asked)? {
            self.parts[0].rest(wait);
        }
        Ok(())
    }

    /// Handles the failure of a further connection. Its bytes are requested again after a pause or when they are next; only
    /// then the failure counts.
    fn trouble(&mut self, n: usize, cause: Cause) {
        tracing::debug!(request = self.asked, host = self.host(), error = %cause, from = self.parts[n].from, "range request failed");
        self.target = None;
        self.troubles += 1;
        let failures = self.parts[n].failures + 1;
        self.parts[n].failures = failures;
        self.parts[n].rest(self.session.client.options().retry.delay(failures));
        match cause {
            Cause::Range(_) => {
                self.learn(HostObservation::Ceiling(1));
                self.pace.limit(1);
            }
            cause if is_too_many(&cause) || self.troubles >= TROUBLES => self.fewer(),
            cause if cause.is_transient() => {}
            _ => self.pace.limit(1),
        }
    }

    /// The host does not accept more connections than those that deliver bytes now.
    fn fewer(&mut self) {
        self.troubles = 0;
        let reading = self.parts.iter().filter(|part| part.is_reading()).count();
        let level = u32::try_from(reading).unwrap_or(u32::MAX).clamp(1, (self.pace.level() - 1).max(1));
        self.learn(HostObservation::Ceiling(level));
        self.pace.limit(level);
    }

    pub(super) fn learn(&self, learnt: HostObservation) {
        let ranges = self.session.ranges(self.attempts.host());
        match learnt {
            HostObservation::Useful(level) => ranges.useful(level, Instant::now()),
            HostObservation::Ceiling(level) => ranges.ceiling(level, Instant::now()),
        }
        tracing::debug!(request = self.asked, host = self.host(), level = ?learnt, "learned the connection limit of the host");
    }

    pub(super) fn active(&self) -> usize {
        self.parts.iter().filter(|part| part.is_active()).count()
    }
}

impl fmt::Debug for BlobStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobStream")
            .field("digest", &self.digest)
            .field("size", &self.size)
            .field("offset", &self.offset)
            .field("parts", &self.parts.len())
            .field("ranged", &self.ranged)
            .finish_non_exhaustive()
    }
}

/// Returns true if a failure may be the host's way of saying that there are too many connections.
fn is_too_many(cause: &Cause) -> bool {
    match cause {
        Cause::Status { status, .. } => matches!(status.as_u16(), 429 | 503),
        Cause::Connect(_) => true,
        _ => false,
    }
}
