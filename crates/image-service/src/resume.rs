//! [`Resuming`]: a blob's chunks, of which those that an earlier pull left are read from the disk and the rest from the
//! source. The chunks are saved as they arrive, if another pull would have to wait long for them. The fetch waits for
//! that writing only if the disk is slower than the source. Data that is read back is verified piece by piece, and all
//! of it with the blob at the end; wrong bytes are never kept. [`crate::pull::layer`] leaves whole layers. It knows no
//! registry and no layer.

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

use crate::background::BlockingDrop;
use crate::error;
use crate::options::Resume;
use crate::origin::{Access, Origin, SharedContent};
use crate::shared::Shared;
use crate::source::{Chunks, Source};

/// Time for which leftovers of interrupted pulls are kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Time before which leftovers are too old. Both in nanoseconds since 1970.
pub(crate) fn kept_since(now: i64) -> i64 {
    now.saturating_sub(i64::try_from(KEPT_FOR.as_nanos()).unwrap_or(i64::MAX))
}

/// Smaller layers and blobs are not worth being kept.
pub(crate) const LEAST: u64 = 1 << 20;
/// A connection with fewer bytes a second is slow: the bytes of a minute take another minute to fetch again. Saving
/// them costs a hundredth of a core.
const SLOW: u64 = 16 << 20;
/// How long the speed of a connection is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes that are written down at once: no more than these, and those that come meanwhile, are lost with the process.
const PIECE: usize = 256 << 10;

/// Judges whether a line is slow: little comes, and it is the line that is waited for.
struct LineSpeed {
    since: Instant,
    waited: Duration,
    bytes: u64,
}

impl LineSpeed {
    fn new(now: Instant) -> Self {
        Self { since: now, waited: Duration::ZERO, bytes: 0 }
    }

    /// So many bytes came, for which so long was waited. Says whether it is slow.
    fn came(&mut self, now: Instant, waited: Duration, bytes: u64) -> bool {
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

/// A spool in the hands of whichever thread writes.
type Writing = Arc<BlockingDrop<Mutex<Option<Spool>>>>;

impl Shared {
    /// The origins, as they were written down, of what is left of a blob and a pull from this source may go on with.
    pub(crate) async fn usable_origins(&self, source: &dyn Source, blob: &Descriptor) -> BTreeSet<String> {
        let left = self.store.origins_of_unfinished(&blob.digest);
        if self.options.shared_content == SharedContent::Open {
            return left;
        }
        let with = |wanted: Access| {
            let access = |text: &str| Some(source.origin().access_to(&text.parse::<Origin>().ok()?));
            left.iter().filter(|text| access(text) == Some(wanted)).cloned().collect::<BTreeSet<_>>()
        };
        let (granted, unsure) = (with(Access::Granted), with(Access::Ask));
        if granted.is_empty() && !unsure.is_empty() && source.has(blob).await { unsure } else { granted }
    }
}

/// See the file's head.
pub(crate) struct Resuming {
    shared: Arc<Shared>,
    source: Arc<dyn Source>,
    descriptor: Descriptor,
    /// The origins of what was left that it may go on with.
    usable: BTreeSet<String>,
    /// Where the next byte is in the blob.
    at: u64,
    /// Chunks from the source, once it is asked.
    remote: Option<Box<dyn Chunks>>,
    spool: Option<Writing>,
    /// Where the spool begins, as long as it is yet to be read back.
    back_from: Option<u64>,
    /// Chunks that are yet to be written down.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    task: Option<JoinHandle<std::result::Result<(), StoreError>>>,
    line: LineSpeed,
    /// Some of what was handed out was left by an earlier pull.
    was_left: bool,
    /// Nothing more is written down.
    given_up: bool,
}

impl Resuming {
    /// Sends no request yet. `usable` are the origins of the leftovers that it may resume.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        source: &Arc<dyn Source>,
        descriptor: &Descriptor,
        usable: BTreeSet<String>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
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
            line: LineSpeed::new(Instant::now()),
            was_left: false,
            given_up: shared.options.resume == Resume::Off || descriptor.size < LEAST,
        }
    }

    /// Opens the blob, or what was left of it.
    pub(crate) async fn open(&mut self) -> Result<()> {
        if !self.given_up && !self.usable.is_empty() {
            self.find().await;
        }
        if self.back_from == Some(0) {
            return Ok(());
        }
        let remote = self.source.blob(&self.descriptor).await?;
        // What lies on this machine anyway is not written down once more.
        let is_remote = remote.is_remote();
        self.remote = Some(remote);
        self.line = LineSpeed::new(Instant::now());
        if !is_remote {
            self.given_up = true;
            self.forget().await;
        } else if self.shared.options.resume == Resume::Always && !self.given_up && self.spool.is_none() {
            self.begin(0).await;
        }
        Ok(())
    }

    /// Takes what an earlier pull left of the blob.
    async fn find(&mut self) {
        let usable = std::mem::take(&mut self.usable);
        let (store, Descriptor { digest, size, .. }) = (self.shared.store.clone(), self.descriptor.clone());
        let take = move || store.take_spool(&digest, size, &|origin| usable.contains(origin));
        let taken = self.shared.background.start(take).await;
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

    fn hold(&self, spool: Spool) -> Writing {
        Arc::new(self.shared.background.hold(Mutex::new(Some(spool))))
    }

    /// Begins to save the bytes from here on, if there is space for them.
    async fn begin(&mut self, at: u64) {
        let (store, Descriptor { digest, size, .. }) = (self.shared.store.clone(), self.descriptor.clone());
        let left = size - at;
        let (promised, origin) = (self.shared.room.promised(), self.source.origin().to_string());
        let made = self.shared.background.start(move || {
            // In addition to the bytes that all pulls still have to write, and twice: saving a blob must never make a
            // pull fail.
            let enough = store.room()?.is_none_or(|free| free >= promised.saturating_add(left.saturating_mul(2)));
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

    /// The next piece that was written down earlier.
    async fn read_back(&mut self) -> Result<Option<Bytes>> {
        let Some(spool) = self.spool.clone() else { return Ok(None) };
        let read = self.shared.background.start(move || {
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

    /// Saves fetched bytes.
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

    /// Has what is pending written, when what was before it is.
    async fn flush(&mut self) {
        self.written().await;
        let pieces = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let Some(spool) = self.spool.clone().filter(|_| !pieces.is_empty()) else { return };
        self.task = Some(self.shared.background.start(move || {
            let mut spool = spool.lock();
            spool.as_mut().map_or(Ok(()), |spool| spool.append(pieces.iter().map(Bytes::as_ref)))
        }));
    }

    async fn written(&mut self) {
        let Some(task) = &mut self.task else { return };
        let written = task.await;
        self.task = None;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.stop_writing(&error),
            Err(_) => (self.spool, self.given_up) = (None, true),
        }
    }

    /// Takes the spool from all threads that share it.
    async fn take(&mut self) -> Option<Spool> {
        self.written().await;
        let spool = self.spool.take()?;
        // An abandoned read may still hold the lock.
        let take = move || spool.lock().take();
        self.shared.background.start(take).await.ok().flatten()
    }

    /// The blob was good, or is no good: what was written down goes.
    pub(crate) async fn forget(&mut self) {
        self.pending.clear();
        self.back_from = None;
        if let Some(spool) = self.take().await {
            self.shared.background.discard(spool).await;
        }
    }

    /// Ends an interrupted fetch: the fetched bytes are left for a later pull, unless the reason speaks against that.
    pub(crate) async fn interrupted(&mut self, why: &Error) {
        if !is_interruption(why) {
            return self.forget().await;
        }
        self.remote = None;
        // Where it was not read back to its end, it is left as it is.
        if self.back_from.is_none() {
            self.flush().await;
        }
        if let Some(spool) = self.take().await {
            let _ = self.shared.background.start(move || spool.leave()).await;
        }
    }
}

/// Returns true if a pull that ended with this error could have continued: it was cancelled, or a failure outside of it
/// ended it.
pub(crate) fn is_interruption(why: &Error) -> bool {
    match why.kind() {
        Kind::Cancelled | Kind::DeadlineExceeded | Kind::Unavailable => true,
        // A credential that is over.
        Kind::Unauthenticated | Kind::PermissionDenied => true,
        // A registry that was asked too often; a full disk says no such thing.
        Kind::ResourceExhausted => why.retry_after().is_some(),
        _ => false,
    }
}

#[async_trait]
impl Chunks for Resuming {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.back_from.is_some_and(|from| self.at >= from) {
            // The chunks before this point were fetched from the source, whose connection would continue at the wrong
            // place.
            self.remote = None;
            if let Some(piece) = self.read_back().await? {
                self.at += piece.len() as u64;
                self.was_left = true;
                return Ok(Some(piece));
            }
            self.back_from = None;
            self.line = LineSpeed::new(Instant::now());
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
            // No further than to where it is here already.
            bytes.truncate(usize::try_from(from - self.at).unwrap_or(usize::MAX));
        } else if self.spool.is_some() {
            self.write(&bytes).await;
        } else if !self.given_up && self.line.came(now, now - asked, bytes.len() as u64) {
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
            // The wrong bytes may be those that were left or those that were fetched: ask the same source from the
            // start.
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
    fn a_line_is_slow_when_little_comes_and_it_is_waited_for() {
        let cases: [(&str, u64, u64, u64, bool); 5] = [
            ("1 MiB a second, all of it waiting", 1000, 1000, 1 << 20, true),
            ("the machine is what is slow", 1000, 300, 1 << 20, false),
            ("just below", 2000, 1900, (32 << 20) - 1, true),
            ("just fast enough", 2000, 1900, 32 << 20, false),
            ("nobody can tell yet", 900, 900, 1, false),
        ];
        for (what, past, waited, bytes, slow) in cases {
            let begin = Instant::now();
            let mut line = LineSpeed::new(begin);
            let half = Duration::from_millis(waited / 2);
            assert!(!line.came(begin, half, bytes / 2), "{what}: not before it was looked at");
            let now = begin + Duration::from_millis(past);
            assert_eq!(line.came(now, half, bytes - bytes / 2), slow, "{what}");
        }
        // One that was fast and is slow now.
        let begin = Instant::now();
        let mut line = LineSpeed::new(begin);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!line.came(after(1), Duration::from_secs(1), 100 << 20));
        assert!(line.came(after(2), Duration::from_secs(1), 1 << 20));
    }
}
