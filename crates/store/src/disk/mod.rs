//! The store's files other than its records: the layout of its root, the lock, the reserve, deletion, and the sync of files. It
//! knows no image.

pub(crate) mod beneath;
pub(crate) mod confine;
pub(crate) mod flush;
pub(crate) mod identity;
pub(crate) mod layer;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod remove_tree;
pub(crate) mod reserve;
pub(crate) mod usage;
pub(crate) mod xattr;
pub(crate) mod young;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::lock::RwLock;

use crate::disk::flush::{Flusher, NO_SYNC_FAILED};
use crate::disk::layout::Layout;

/// The directories of an open store. Knows no record.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) layout: Layout,
    /// Writes layers to the disk while they come.
    pub(crate) flusher: Flusher,
    /// Guards the time between the removal of a record and the deletion of its files: shared by deletions, and held exclusively
    /// by searches for files without records.
    pub(crate) deleting: RwLock<()>,
    /// Something could not be deleted, or be moved back: a sweep searches for it later.
    untidy: AtomicBool,
    /// How many syncs of the file system failed.
    pub(crate) failed_syncs: AtomicU64,
}

/// A failed sync of the store's file system.
#[derive(Debug)]
pub(crate) struct SyncError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

impl Disk {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            flusher: Flusher::default(),
            deleting: RwLock::default(),
            untidy: AtomicBool::new(false),
            failed_syncs: AtomicU64::new(NO_SYNC_FAILED),
        }
    }

    /// Notes that unreferenced files were left, which a sweep has to remove.
    pub(crate) fn note_untidy(&self) {
        self.untidy.store(true, Ordering::Release);
    }

    /// Returns true if unreferenced files were left, and resets the note.
    pub(crate) fn take_untidy(&self) -> bool {
        self.untidy.load(Ordering::Acquire) && self.untidy.swap(false, Ordering::AcqRel)
    }

    /// Writes what new layers have to the disk. Where that fails, none is used that was begun before: what the kernel could
    /// not write it does not try to write once more.
    pub(crate) fn sync_layers(&self) -> Result<(), SyncError> {
        let synced = self.sync_file_system();
        if synced.is_err() {
            self.failed_syncs.fetch_add(1, Ordering::AcqRel);
            if let Err(error) = layout::forget_layers(&self.layout.root) {
                tracing::warn!(%error, "what says that layers are whole stays, although something could not be written");
            }
        }
        synced
    }

    /// Writes all files of the store's file system to the disk.
    pub(crate) fn sync_file_system(&self) -> Result<(), SyncError> {
        rustix::fs::syncfs(&self.layout.root)
            .map_err(|source| SyncError { path: self.layout.path.clone(), source: source.into() })
    }

    /// Returns true if something could not be written since the store was opened: then what reads well may only be in memory.
    pub(crate) fn has_failed_to_write(&self) -> bool {
        self.failed_syncs.load(Ordering::Acquire) != NO_SYNC_FAILED || self.flusher.has_failed()
    }
}

/// User 0 of the machine, not of a user namespace that maps few users and may make no devices.
#[must_use]
pub fn is_privileged() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
