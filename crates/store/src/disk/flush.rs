//! [`Flusher`]: writes the pages of unpacked layers from the page cache to the disk while more data arrives, so that the sync of
//! a durable commit has little left to write. Promises nothing: the commit syncs all the same. The ingest reports what was
//! written.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::lock::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::disk::layout::forget_layers;

/// After so many bytes the next sync begins, if the one before has ended. Durable pulls of 81,000 files on a loaded machine took
/// 29 and 26 s instead of 39 and 33 with the file system synced again and again meanwhile, and no more CPU time.
const STEP: u64 = 64 << 20;
/// Bytes that a file costs in addition to its content: its inode and name, in the journal and in their place.
const FILE: u64 = 1 << 10;

/// How many syncs have failed when none has.
pub(crate) const NO_SYNC_FAILED: u64 = 0;

/// Writes the layers of a store to the disk, whatever the number of layers that are unpacked at the same time.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    unwritten: AtomicU64,
    /// How many syncs have begun, and the number of the last one that ended well.
    begun: AtomicU64,
    ended: Arc<AtomicU64>,
    /// Some of it could not be written.
    failed: Arc<AtomicBool>,
    /// Guards the one thread that syncs.
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Returns the bytes that were written since the last sync, or `None` while a sync is running, or if the last one failed.
    pub(crate) fn unwritten(&self) -> Option<u64> {
        let unwritten = self.unwritten.load(Ordering::Acquire);
        (self.begun.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire)).then_some(unwritten)
    }

    /// A mark of this moment for [`Flusher::is_synced_since`].
    pub(crate) fn mark(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Returns true if a sync that began after the mark has ended: what was written before the mark is on the disk.
    pub(crate) fn is_synced_since(&self, mark: u64) -> bool {
        self.ended.load(Ordering::Acquire) > mark
    }

    /// Returns true if something could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Notes that a file of so many bytes was written in the file system of `root`.
    pub(crate) fn note(&self, root: &OwnedFd, bytes: u64) {
        let bytes = bytes.saturating_add(FILE);
        if self.unwritten.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < STEP {
            return;
        }
        let Some(mut running) = self.running.try_lock() else { return };
        if running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        // Before it is counted as nothing to write.
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.unwritten.store(0, Ordering::Release);
        // Uses a separate open file: the kernel reports a failed write once per open file, and the commit must get that report.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(own) = rustix::fs::openat(root, ".", flags, Mode::empty()) else { return };
        let (failed, ended) = (Arc::clone(&self.failed), Arc::clone(&self.ended));
        let sync = move || {
            let synced = rustix::fs::syncfs(&own);
            if synced.is_ok() {
                ended.fetch_max(number, Ordering::AcqRel);
            }
            if let Err(error) = synced {
                tracing::debug!(%error, "an early sync failed; the commit's will tell");
                failed.store(true, Ordering::Release);
                // A later process does not get the report, so the notes that vouch for layers are removed.
                if let Err(error) = forget_layers(&own) {
                    tracing::warn!(%error, "what says that layers are whole stays, although something could not be written");
                }
            }
        };
        // Without a thread the commit has more to do.
        *running = std::thread::Builder::new().name("store-flush".into()).spawn(sync).ok();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        if let Some(thread) = running.take() {
            // The thread ends by itself, and returns nothing.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_when_enough_has_come_and_one_at_a_time() {
        let top = tempfile::tempdir().expect("tempdir");
        let root = OwnedFd::from(std::fs::File::open(top.path()).expect("opens"));
        let flusher = Flusher::default();
        let begun = |flusher: &Flusher| flusher.running.lock().is_some();
        flusher.note(&root, STEP - FILE - 1);
        assert!(!begun(&flusher));
        flusher.note(&root, 0);
        assert!(begun(&flusher));
        assert_eq!(flusher.unwritten.load(Ordering::Relaxed), 0);
        // However many come while it runs, they wait for its end, and are counted.
        flusher.note(&root, u64::MAX / 2);
        drop(flusher);
    }

    #[test]
    fn only_a_sync_that_began_later_makes_durable() {
        let top = tempfile::tempdir().expect("tempdir");
        let root = OwnedFd::from(std::fs::File::open(top.path()).expect("opens"));
        let mut flusher = Flusher::default();
        let before = flusher.mark();
        assert!(!flusher.is_synced_since(before));
        flusher.note(&root, STEP);
        let meanwhile = flusher.mark();
        flusher.note(&root, 7);
        flusher.running.get_mut().take().expect("it runs").join().expect("it ends");
        assert!(flusher.is_synced_since(before));
        assert!(!flusher.is_synced_since(meanwhile), "it had begun by then");
        assert_eq!(flusher.unwritten(), Some(FILE + 7));
    }
}
