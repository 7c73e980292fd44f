//! [`Catalog`]: the records of a store and the disk that they describe, with the means by which both are made durable. Every
//! other part refers to it, so dropping the last one closes the store: it settles all pending work, and releases the lock.

use std::io;

use oci::Digest;

use crate::disk::Disk;
use crate::disk::layer::LayerId;
use crate::disk::layout;
use crate::disk::lock::StoreLock;
use crate::disk::reserve::RECORDS_ROOM;
use crate::error::StoreError;
use crate::options::Durability;
use crate::records::db::Db;
use crate::records::entries::{BlobEntry, LayerEntry};
use crate::records::tables::{Records, RecordsMut};

/// Seconds after its last change by which a file is on the disk, with some reserve: by default Linux lets it age 30 seconds, and
/// its flusher wakes every 5.
const SETTLED_BY_ITSELF: u64 = 60;

/// The records, the disk, and how durable both are.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// The database, whose handle has a lock of its own.
    pub(crate) db: Db,
    pub(crate) disk: Disk,
    pub(crate) durability: Durability,
    /// This boot of the machine, for relaxed durability.
    pub(crate) boot: String,
    /// True if this process stays, and its end is one of the machine's.
    pub(crate) agent: bool,
    /// The lock file. Last, so that it is given back after everything else is closed.
    pub(crate) lock: StoreLock,
}

impl Catalog {
    /// A write of the database that finds no space would use up the reserve: better not to begin it. The database puts
    /// a document into a power of two of pages, and copies the pages of the records that it changes.
    pub(crate) fn ensure_room(&self, document_bytes: u64) -> Result<(), StoreError> {
        self.db
            .reserve()
            .ensure_room(2 * document_bytes + RECORDS_ROOM)
            .map_err(|source| StoreError::io("find room in", &self.disk.layout.path, source))
    }

    pub(crate) fn refill_reserve(&self) {
        if let Err(error) = self.db.reserve().ensure() {
            tracing::warn!(%error, "the disk is still too full for the store's reserve");
        }
    }

    /// From now on an unclean end is detected by the next open. Nothing is synced for that: layers become durable with the sync
    /// of their commit, which includes the note, and where nothing was committed there is nothing to check.
    pub(crate) fn mark_in_use(&self, next_layer: u64) -> io::Result<()> {
        match self.lock.unclean_since() {
            None => self.lock.good_up_to(next_layer, false),
            Some(_) => Ok(()),
        }
    }

    /// Returns true if an end has something to make sure, and may take the time that it takes.
    fn settles_at_end(&self) -> bool {
        match self.durability {
            // Nothing was ever written.
            Durability::Full => !self.db.youth().is_young(),
            // After a pull that was not to wait for a sync, its process does not either. By a minute after the last change the
            // kernel has written all of it, and it costs little to say so.
            Durability::Relaxed => {
                self.agent || self.lock.follows(&self.disk.layout.path.join(layout::DATABASE)) >= SETTLED_BY_ITSELF
            }
        }
    }

    /// Notes in the lock file that all layers below this number are good.
    pub(crate) fn good_up_to(&self, next_layer: u64) -> io::Result<()> {
        self.lock.good_up_to(next_layer, !self.db.youth().is_young())
    }

    /// Writes what relaxed durability left to the page cache, which is trusted from now on; a young store grows up.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let rows = self.db.read(Records::layer_rows)?;
        let unsynced = |(id, entry): (LayerId, Result<LayerEntry, StoreError>)| {
            entry.ok().filter(|entry| entry.unsynced_boot.is_some()).map(|entry| (id, entry))
        };
        let waiting: Vec<(LayerId, LayerEntry)> = rows.into_iter().filter_map(unsynced).collect();
        let blobs = self.db.read(Records::blob_rows)?.into_iter().filter_map(|(_, row)| row.ok());
        let blobs: Vec<(Digest, BlobEntry)> = blobs.filter(|(_, entry)| entry.unsynced_boot.is_some()).collect();
        let youth = self.db.youth();
        if waiting.is_empty() && blobs.is_empty() && !youth.is_young() {
            return Ok(());
        }
        self.disk.sync_file_system()?;
        youth.end().map_err(|source| StoreError::io("settle", &self.disk.layout.path, source))?;
        self.db.write(|transaction| {
            for (digest, mut entry) in blobs {
                entry.unsynced_boot = None;
                transaction.put_blob(&digest, &entry)?;
            }
            for (id, mut entry) in waiting {
                entry.unsynced_boot = None;
                transaction.put_layer(id, &entry)?;
            }
            Ok(())
        })
    }

    /// The boot to write into a new record: set while relaxed durability leaves its files to the page cache.
    pub(crate) fn unsynced_boot(&self) -> Option<String> {
        (self.durability == Durability::Relaxed).then(|| self.boot.clone())
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        if !self.settles_at_end() {
            return;
        }
        if let Err(error) = self.settle() {
            self.lock.note_unclean();
            tracing::warn!(%error, "the store was closed without a sync; images of relaxed durability may not survive a crash");
        }
    }
}
