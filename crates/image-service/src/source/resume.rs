//! [`ResumableBlob`]: the chunks of a blob. Those that an interrupted pull left are read from the disk, the rest from the source.
//! On a slow connection, chunks are saved as they arrive, so that a later pull can resume. The fetch waits for these writes only
//! if the disk is slower than the source. Chunks from the disk are verified piece by piece, and the whole blob at the end;
//! wrong bytes are never kept. Knows no registry and no layer.

use base::lock::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Error, Kind, Result};
use oci::Descriptor;
use store::{Spool, StoreError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Chunks, Source};
use crate::background::BlockingDrop;
use crate::budgets::SpaceReservations;
use crate::content::Content;
use crate::error;
use crate::options::Resume;
use crate::origin::{Access, Origin, SharedContent};

/// Time for which leftovers of interrupted pulls are kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Returns the time before which leftovers are too old. Both times are in nanoseconds since 1970.
pub(crate) fn kept_since(now: i64) -> i64 {
    now.saturating_sub(i64::try_from(KEPT_FOR.as_nanos()).unwrap_or(i64::MAX))
}

/// Smaller layers and blobs are not left for a later pull.
pub(crate) const LEAST: u64 = 1 << 20;
/// A connection with fewer bytes per second is slow. Saving chunks at this rate takes a hundredth of a core.
const SLOW: u64 = 16 << 20;
/// How long the speed of a connection is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes per write. A killed process loses no more than these and those that arrived during the write.
const PIECE: usize = 256 << 10;

/// Detects a slow connection: few bytes arrive, and the time is spent waiting for them.
struct ConnectionSpeed {
    since: Instant,
    waited: Duration,
    bytes: u64,
}

impl ConnectionSpeed {
    fn new(now: Instant) -> Self {
        Self { since: now, waited: Duration::ZERO, bytes: 0 }
    }

    /// Adds bytes that arrived after a wait. Returns true if the connection is slow.
    fn add(&mut self, now: Instant, waited: Duration, bytes: u64) -> bool {
        self.waited += waited;
        self.bytes += bytes;
        let past = now - self.since;
        if past < WINDOW {
            return false;
        }
        let slow = self.bytes < SLOW.saturating_mul(past.as_millis().try_into().unwrap_or(u64::MAX)) / 1000;
        let is_slow = slow && self.waited * 2 >= past;
        *self = Self::new(now);
        is_slow
    }
}

/// A spool that is shared with the thread that writes it.
type SharedSpool = Arc<BlockingDrop<Mutex<Option<Spool>>>>;

/// Returns the recorded origins of those leftovers of a blob that a pull from `source` may resume.
pub(crate) async fn usable_origins(content: &Content, source: &dyn Source, blob: &Descriptor) -> BTreeSet<String> {
    let left = content.store.origins_of_unfinished(&blob.digest);
    if content.sharing == SharedContent::Open {
        return left;
    }
    let with = |wanted: Access| {
        let access = |text: &str| Some(source.origin().access_to(&text.parse::<Origin>().ok()?));
        left.iter().filter(|text| access(text) == Some(wanted)).cloned().collect::<BTreeSet<_>>()
    };
    let (granted, unsure) = (with(Access::Granted), with(Access::Ask));
    if granted.is_empty() && !unsure.is_empty() && source.has(blob).await { unsure } else { granted }
}

/// The chunks of a blob, resumed from the leftovers of an interrupted pull.
pub(crate) struct ResumableBlob {
    content: Arc<Content>,
    space: SpaceReservations,
    mode: Resume,
    source: Arc<dyn Source>,
    descriptor: Descriptor,
    /// The origins of the leftovers that may be resumed.
    usable: BTreeSet<String>,
    /// Offset of the next byte in the blob.
    at: u64,
    /// Chunks from the source, once it is opened.
    remote: Option<Box<dyn Chunks>>,
    spool: Option<SharedSpool>,
    /// Offset at which the spool begins, until it is read to its end.
    back_from: Option<u64>,
    /// Chunks that are not saved yet.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    task: Option<JoinHandle<std::result::Result<(), StoreError>>>,
    line: ConnectionSpeed,
    /// True if the returned chunks were read from the spool.
    was_left: bool,
    /// True if no more chunks are saved.
    given_up: bool,
}

impl ResumableBlob {
    /// Makes the chunks of a blob, without a request. `usable` are the origins of the leftovers that may be resumed.
    pub(crate) fn new(
        (content, space, mode): (&Arc<Content>, &SpaceReservations, Resume),
        source: &Arc<dyn Source>,
        descriptor: &Descriptor,
        usable: BTreeSet<String>,
    ) -> Self {
        Self {
            content: Arc::clone(content),
            space: space.clone(),
            mode,
            source: Arc::clone(source),
            descriptor: descriptor.clone(),
            usable,
            at: 0,
            remote: None,
            spool: None,
            back_from: None,
            pending: Vec::new(),
            pending_bytes: 0,
            task: None,
            line: ConnectionSpeed::new(Instant::now()),
            was_left: false,
            given_up: mode == Resume::Off || descriptor.size < LEAST,
        }
    }

    /// Opens the blob, or its leftovers.
    pub(crate) async fn open(&mut self) -> Result<()> {
        if !self.given_up && !self.usable.is_empty() {
            self.find().await;
        }
        if self.back_from == Some(0) {
            return Ok(());
        }
        let remote = self.source.blob(&self.descriptor).await?;
        // A blob that is already on this machine is not saved.
        let is_remote = remote.is_remote();
        self.remote = Some(remote);
        self.line = ConnectionSpeed::new(Instant::now());
        if !is_remote {
            self.given_up = true;
            self.forget().await;
        } else if self.mode == Resume::Always && !self.given_up && self.spool.is_none() {
            self.begin(0).await;
        }
        Ok(())
    }

    /// Takes the spool that an interrupted pull left of the blob.
    async fn find(&mut self) {
        let usable = std::mem::take(&mut self.usable);
        let (store, Descriptor { digest, size, .. }) = (self.content.store.clone(), self.descriptor.clone());
        let take = move || store.take_spool(&digest, size, &|origin| usable.contains(origin));
        let taken = self.content.background.start(take).await;
        match taken {
            Ok(Ok(Some(spool))) => {
                tracing::info!(blob = %self.descriptor.digest, from = spool.begin(), "resume the blob of an interrupted pull");
                self.back_from = Some(spool.begin());
                self.spool = Some(self.hold(spool));
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot resume the blob of an interrupted pull"),
            Err(_) => self.given_up = true,
        }
    }

    fn hold(&self, spool: Spool) -> SharedSpool {
        Arc::new(self.content.background.hold(Mutex::new(Some(spool))))
    }

    /// Begins to save the bytes from an offset on, if there is space for them.
    async fn begin(&mut self, at: u64) {
        let (store, Descriptor { digest, size, .. }) = (self.content.store.clone(), self.descriptor.clone());
        let left = size - at;
        let (reserved, origin) = (self.space.reserved(), self.source.origin().to_string());
        let made = self.content.background.start(move || {
            // Twice the size in addition to all reservations: saving a blob must never make a pull fail.
            let enough = store.room()?.is_none_or(|free| free >= reserved.saturating_add(left.saturating_mul(2)));
            enough.then(|| store.new_spool(&digest, size, at, &origin)).transpose()
        });
        match made.await {
            Ok(Ok(Some(spool))) => {
                tracing::debug!(blob = %self.descriptor.digest, at, "connection is slow: keep the blob for a later pull");
                self.spool = Some(self.hold(spool));
            }
            Ok(Ok(None)) => self.given_up = true,
            Ok(Err(error)) => self.stop_writing(&error),
            Err(_) => self.given_up = true,
        }
    }

    fn stop_writing(&mut self, error: &StoreError) {
        tracing::debug!(blob = %self.descriptor.digest, %error, "cannot keep the blob for a later pull");
        self.spool = None;
        self.given_up = true;
    }

    /// Reads the next piece of the spool.
    async fn read_back(&mut self) -> Result<Option<Bytes>> {
        let Some(spool) = self.spool.clone() else { return Ok(None) };
        let read = self.content.background.start(move || {
            let mut spool = spool.lock();
            spool.as_mut().map_or(Ok(None), Spool::read_back)
        });
        match read.await.map_err(|_| error::thread_lost())? {
            Ok(piece) => Ok(piece.map(Bytes::from)),
            Err(error) => {
                self.stop_writing(&error);
                Ok(None)
            }
        }
    }

    /// Queues fetched bytes for saving.
    async fn write(&mut self, bytes: &Bytes) {
        if self.spool.is_none() {
            return;
        }
        self.pending.push(bytes.clone());
        self.pending_bytes += bytes.len();
        if self.pending_bytes >= PIECE {
            self.flush().await;
        }
    }

    /// Starts writing the pending chunks after the previous write.
    async fn flush(&mut self) {
        self.wait_for_write().await;
        let pieces = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let Some(spool) = self.spool.clone().filter(|_| !pieces.is_empty()) else { return };
        self.task = Some(self.content.background.start(move || {
            let mut spool = spool.lock();
            spool.as_mut().map_or(Ok(()), |spool| spool.append(pieces.iter().map(Bytes::as_ref)))
        }));
    }

    async fn wait_for_write(&mut self) {
        let Some(task) = &mut self.task else { return };
        let written = task.await;
        self.task = None;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.stop_writing(&error),
            Err(_) => (self.spool, self.given_up) = (None, true),
        }
    }

    /// Takes the spool from the thread that writes it.
    async fn take(&mut self) -> Option<Spool> {
        self.wait_for_write().await;
        let spool = self.spool.take()?;
        // An abandoned read may still hold the lock.
        let take = move || spool.lock().take();
        self.content.background.start(take).await.ok().flatten()
    }

    /// Deletes the spool after a complete fetch, or one that must not be resumed.
    pub(crate) async fn forget(&mut self) {
        self.pending.clear();
        self.back_from = None;
        if let Some(spool) = self.take().await {
            self.content.background.discard(spool).await;
        }
    }

    /// Ends an interrupted fetch: the fetched bytes are left for a later pull if the error is an interruption.
    pub(crate) async fn interrupted(&mut self, why: &Error) {
        if !is_interruption(why) {
            return self.forget().await;
        }
        self.remote = None;
        // A spool that was not read to its end is left unchanged.
        if self.back_from.is_none() {
            self.flush().await;
        }
        if let Some(spool) = self.take().await {
            let _ = self.content.background.start(move || spool.leave()).await;
        }
    }
}

/// Returns true if a later pull can continue after this error: the pull was cancelled, or failed for an external reason.
pub(crate) fn is_interruption(why: &Error) -> bool {
    match why.kind() {
        Kind::Cancelled | Kind::DeadlineExceeded | Kind::Unavailable => true,
        // The credential may have expired.
        Kind::Unauthenticated | Kind::PermissionDenied => true,
        // A rate limit; the error of a full disk has no such time.
        Kind::ResourceExhausted => why.retry_after().is_some(),
        _ => false,
    }
}

#[async_trait]
impl Chunks for ResumableBlob {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.back_from.is_some_and(|from| self.at >= from) {
            // The connection of the chunks before this offset would continue at the wrong offset.
            self.remote = None;
            if let Some(piece) = self.read_back().await? {
                self.at += piece.len() as u64;
                self.was_left = true;
                return Ok(Some(piece));
            }
            self.back_from = None;
            self.line = ConnectionSpeed::new(Instant::now());
        }
        if self.at >= self.descriptor.size && self.remote.is_none() {
            return Ok(None);
        }
        let remote = match &mut self.remote {
            Some(remote) => remote,
            None => {
                let rest = match self.at {
                    0 => self.source.blob(&self.descriptor).await?,
                    at => self.source.blob_from(&self.descriptor, at).await?,
                };
                self.remote.insert(rest)
            }
        };
        let asked = Instant::now();
        let Some(mut bytes) = remote.next().await? else { return Ok(None) };
        let now = Instant::now();
        if let Some(from) = self.back_from {
            // Not beyond the start of the spool.
            bytes.truncate(usize::try_from(from - self.at).unwrap_or(usize::MAX));
        } else if self.spool.is_some() {
            self.write(&bytes).await;
        } else if !self.given_up && self.line.add(now, now - asked, bytes.len() as u64) {
            let left = self.descriptor.size.saturating_sub(self.at + bytes.len() as u64);
            if left >= LEAST {
                self.begin(self.at).await;
                self.write(&bytes).await;
            }
        }
        self.at += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn start_over(&mut self, why: &Error) -> Result<()> {
        (self.at, self.back_from, self.pending_bytes) = (0, None, 0);
        self.pending.clear();
        (self.spool, self.given_up) = (None, true);
        match &mut self.remote {
            Some(remote) if !self.was_left => remote.start_over(why),
            // The wrong bytes may be those of the spool or those of the source: fetch the blob again from the same source.
            _ => {
                (self.remote, self.was_left) = (None, false);
                Ok(())
            }
        }
    }

    fn is_remote(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_remote())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_slow_if_few_bytes_arrive_and_the_time_is_spent_waiting() {
        let cases: [(&str, u64, u64, u64, bool); 5] = [
            ("1 MiB a second, all of it waiting", 1000, 1000, 1 << 20, true),
            ("the machine is slow", 1000, 300, 1 << 20, false),
            ("just below", 2000, 1900, (32 << 20) - 1, true),
            ("just fast enough", 2000, 1900, 32 << 20, false),
            ("not measured yet", 900, 900, 1, false),
        ];
        for (what, past, waited, bytes, slow) in cases {
            let begin = Instant::now();
            let mut line = ConnectionSpeed::new(begin);
            let half = Duration::from_millis(waited / 2);
            assert!(!line.add(begin, half, bytes / 2), "{what}: not before a second has passed");
            let now = begin + Duration::from_millis(past);
            assert_eq!(line.add(now, half, bytes - bytes / 2), slow, "{what}");
        }
        // A fast connection becomes slow.
        let begin = Instant::now();
        let mut line = ConnectionSpeed::new(begin);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!line.add(after(1), Duration::from_secs(1), 100 << 20));
        assert!(line.add(after(2), Duration::from_secs(1), 1 << 20));
    }
}
