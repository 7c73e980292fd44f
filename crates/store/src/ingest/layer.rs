//! Layers in the making: a private directory under `ingest/`, unpacked into, and handed to a commit. What is dropped
//! before a commit took it is deleted. Knows nothing of images; [`crate::images::commit`] moves the directory.

use std::fmt;
use std::io::{self, BufRead};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::lock::{Mutex, MutexGuard};
use oci::Digest;
use rustix::fs::Mode;

use crate::content::private::Private;
use crate::disk::confine::confined;
use crate::disk::flush::NO_SYNC_FAILED;
use crate::disk::layer::{LayerId, Shape};
use crate::disk::layout;
use crate::error::StoreError;
use crate::ingest::Ingests;
use crate::maintenance::Lease;
use crate::options::{Cancelled, Durability};
use crate::records::entries::LayerStats;
use crate::unpack::{UnpackError, UnpackOptions, UnpackOutcome};

impl Ingests {
    pub(crate) fn new_layer(self: &Arc<Self>, shape: Shape) -> Result<LayerIngest, StoreError> {
        let since = self.catalog.disk.failed_syncs.load(Ordering::Acquire);
        let private = self.content.private();
        let (path, name) = (self.catalog.disk.layout.ingest_path(private.number), private.name());
        let failed = |source: io::Error| StoreError::io("create the layer directory", &path, source);
        rustix::fs::mkdirat(&self.catalog.disk.layout.ingest, name.as_str(), Mode::RWXU)
            .map_err(|e| failed(e.into()))?;
        let directory = layout::open_directory(&self.catalog.disk.layout.ingest, &name).map_err(failed)?;
        shape.begin(&directory).map_err(failed)?;
        Ok(LayerIngest { ingests: Arc::clone(self), private, directory, shape, since, blob: None })
    }
}

/// A layer that is about to be unpacked.
pub struct LayerIngest {
    ingests: Arc<Ingests>,
    private: Private,
    directory: OwnedFd,
    shape: Shape,
    /// How many syncs had failed when it was begun.
    since: u64,
    /// Bytes of the blob that the layer is unpacked from, and the most entries that these may produce.
    blob: Option<(u64, u64)>,
}

impl fmt::Debug for LayerIngest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerIngest").field("number", &self.private.number).finish_non_exhaustive()
    }
}

impl LayerIngest {
    /// Notes that the layer is unpacked from a blob of so many bytes, from which no more than so many entries are accepted.
    #[must_use]
    pub fn of_blob(self, bytes: u64, entries: u64) -> Self {
        Self { blob: Some((bytes, entries)), ..self }
    }

    /// Unpacks a tar stream, which is read to its end, trailing bytes included. File data is written from the buffers of
    /// `tar`. `cancelled` is asked now and then. Both are called on a thread that can change nothing but this layer.
    ///
    /// # Errors
    /// See [`UnpackError`]. The directory is removed then.
    pub fn unpack(
        self,
        tar: &mut (dyn BufRead + Send),
        cancelled: Cancelled<'_>,
    ) -> Result<UnpackedLayer, UnpackError> {
        self.unpack_with(tar, cancelled, false)
    }

    /// With `hollow`, files have no content: such a tree is to compare with, not to commit.
    pub(crate) fn unpack_with(
        self,
        tar: &mut (dyn BufRead + Send),
        cancelled: Cancelled<'_>,
        hollow: bool,
    ) -> Result<UnpackedLayer, UnpackError> {
        let ingests = self.ingests;
        let durable = ingests.catalog.durability == Durability::Full && !hollow;
        let (shape, directory) = (self.shape, self.directory.as_fd());
        let mut limits = ingests.limits.clone();
        if let Some((bytes, entries)) = self.blob.filter(|(_, entries)| *entries < limits.entries) {
            (limits.entries, limits.compressed) = (entries, Some(bytes));
        }
        // Answered before the thread is confined, in which nothing can be mounted to try it.
        let nested = ingests.is_nested();
        let apply = || {
            let written = |bytes: u64| ingests.catalog.disk.flusher.note(&ingests.catalog.disk.layout.root, bytes);
            let write_back = durable.then_some(&written as &dyn Fn(u64));
            let options = UnpackOptions {
                limits: &limits,
                privileged: ingests.layers.privileged,
                cancelled,
                write_back,
                hollow,
                nested,
            };
            shape.apply(tar, directory, &options)
        };
        let applied = confined(directory, ingests.catalog.disk.layout.root.as_fd(), apply);
        let (outcome, stats) = applied.map_err(|source| UnpackError::Io {
            operation: "starting a thread for",
            path: "the layer".into(),
            source,
        })??;
        Ok(UnpackedLayer {
            ingests,
            outcome,
            stats: Mutex::new(stats),
            shape,
            since: self.since,
            is_left: false,
            state: Mutex::new(LayerOwner::Private(self.private, None)),
        })
    }
}

/// An unpacked layer that no image has yet. Pulls that want the same layer share it. Dropping it deletes the layer, unless a
/// commit took it: drop it on a thread that may block.
pub struct UnpackedLayer {
    pub(crate) ingests: Arc<Ingests>,
    pub(crate) outcome: UnpackOutcome,
    pub(crate) shape: Shape,
    /// How many syncs had failed when it was begun.
    since: u64,
    /// Guards the numbers, of which those of the disk are taken once more by the commit.
    stats: Mutex<LayerStats>,
    /// An earlier pull left it: what was unpacked now was a copy of it.
    is_left: bool,
    /// Guards where the directory is.
    state: Mutex<LayerOwner>,
}

/// Where an unpacked layer's directory is.
enum LayerOwner {
    /// Under `ingest/`. With the stack for which its implicit directories were patched, if they were.
    Private(Private, Option<Digest>),
    /// Under `layers/`, and leased so that it stays while this layer is shared.
    Committed(LayerId, #[expect(dead_code, reason = "held for its end")] Lease),
    /// A commit failed half way, and the directory stays where it is.
    Lost,
}

/// Where an unpacked layer's directory is, as a commit sees it.
pub(crate) enum LayerPlace {
    Private { number: u64, patched_for: Option<Digest> },
    Committed(LayerId),
    Lost,
}

impl UnpackedLayer {
    /// A layer that was left by an earlier pull, in a store of which no sync has failed yet.
    pub(crate) fn again(
        ingests: &Arc<Ingests>,
        private: Private,
        outcome: UnpackOutcome,
        stats: LayerStats,
        shape: Shape,
    ) -> Self {
        Self {
            ingests: Arc::clone(ingests),
            outcome,
            stats: Mutex::new(stats),
            shape,
            since: NO_SYNC_FAILED,
            is_left: true,
            state: Mutex::new(LayerOwner::Private(private, None)),
        }
    }

    /// Does something with its private directory, if that is as it was unpacked.
    pub(crate) fn with_unpatched(
        &self,
        work: impl FnOnce(&mut Private) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match &mut *self.lock() {
            LayerOwner::Private(private, None) => work(private),
            _ => Ok(()),
        }
    }

    /// The private directory, if that is as it was unpacked.
    pub(crate) fn into_unpatched(self) -> Option<Private> {
        match self.state.into_inner() {
            LayerOwner::Private(private, None) => Some(private),
            _ => None,
        }
    }

    /// Counts of its content.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        *self.stats.lock()
    }

    /// Takes the size once more that the layer has on the disk: attributes of implicit directories may have made it longer, and
    /// the file system knows it for sure when it has written it.
    pub(crate) fn measure(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        // Before a tree is written, what was counted is the best known size.
        let is_written = self.ingests.catalog.durability == Durability::Full || self.is_left;
        if self.shape.is_dir() && !is_written {
            return Ok(());
        }
        let counted = (!self.is_left).then_some(&self.outcome);
        let (disk_bytes, inodes) = self.shape.measure(directory, counted)?;
        let mut stats = self.stats.lock();
        *stats = LayerStats { disk_bytes, inodes, ..*stats };
        Ok(())
    }

    /// Adds to the counted size.
    pub(crate) fn grow(&self, bytes: u64, inodes: u64) {
        let mut stats = self.stats.lock();
        stats.disk_bytes += bytes;
        stats.inodes += inodes;
    }

    pub(crate) fn place(&self) -> LayerPlace {
        match &*self.lock() {
            // The kernel treats what it could not write as written: it is unknown whether that was part of this layer.
            LayerOwner::Private(..) if self.since != self.ingests.catalog.disk.failed_syncs.load(Ordering::Acquire) => {
                LayerPlace::Lost
            }
            LayerOwner::Private(private, patched_for) => {
                LayerPlace::Private { number: private.number, patched_for: patched_for.clone() }
            }
            LayerOwner::Committed(id, _) => LayerPlace::Committed(*id),
            LayerOwner::Lost => LayerPlace::Lost,
        }
    }

    /// Notes for which stack the implicit directories are about to be patched.
    pub(crate) fn note_patch(&self, chain_id: &Digest) {
        if let LayerOwner::Private(private, patched_for) = &mut *self.lock() {
            private.clear_note();
            *patched_for = Some(chain_id.clone());
        }
    }

    /// Notes that the directory is now the store's.
    pub(crate) fn note_committed(&self, id: LayerId, lease: Lease) {
        let before = std::mem::replace(&mut *self.lock(), LayerOwner::Committed(id, lease));
        // The directory has another name now: there is nothing to delete, which deleting finds out by itself.
        drop(before);
    }

    /// Notes that the directory is no longer private and was not committed.
    pub(crate) fn note_lost(&self) {
        let before = std::mem::replace(&mut *self.lock(), LayerOwner::Lost);
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, LayerOwner> {
        self.state.lock()
    }
}

impl fmt::Debug for UnpackedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnpackedLayer").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
