//! The sweep: removes files without a record, and unreferenced records. At open this undoes whatever a killed process began;
//! later it removes the layers that only a lease had kept. It never needs free space: where the disk has none for a record, files
//! are deleted first and the records follow.

use std::collections::BTreeSet;

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::maintenance::Maintenance;
use crate::records::entries::{LayerEntry, Removed};
use crate::records::release::{freed, unrecord_layer};
use crate::records::tables::Records;

impl Maintenance {
    /// Deletes what an earlier failure has left over, if there was one. What still cannot be deleted waits for the next time.
    pub(crate) fn tidy_up(&self) {
        if !self.catalog.disk.take_untidy() {
            return;
        }
        match self.sweep_strays() {
            Ok(true) => {}
            Ok(false) => self.catalog.disk.note_untidy(),
            Err(error) => {
                tracing::warn!(%error, "leftovers could not be removed");
                self.catalog.disk.note_untidy();
            }
        }
    }

    /// Deletes everything that no record names and no operation uses. Returns true if all of it was deleted.
    fn sweep_strays(&self) -> Result<bool, StoreError> {
        let _commit = self.commit.lock();
        let _deleting = self.catalog.disk.deleting.write();
        let _mounting = self.mounts.mounting.lock();
        let mounted = self.mounts.uses()?;
        let mounted = mounted.iter().flat_map(|(_, used)| used.layers().iter().copied());
        let (layers, blobs) = self.catalog.db.read(|records| {
            let layers: BTreeSet<LayerId> = records.layer_rows()?.into_iter().map(|(id, _)| id).collect();
            // The file that an unreadable record names is unknown, so an unreadable record ends the sweep.
            let blobs: Result<Vec<_>, _> = records.blob_rows()?.into_iter().map(|(_, row)| row).collect();
            Ok::<_, StoreError>((layers, blobs?))
        })?;
        let keep = layers.into_iter().chain(mounted).collect();
        let blobs = blobs.into_iter().map(|(_, entry)| entry.number).collect();
        let strays = self.find_strays(&keep, &blobs, true)?;
        tracing::info!(count = strays.len(), "swept what was left over");
        Ok(strays.iter().all(|stray| stray.deleted))
    }

    /// Deletes layers that no image has and no lease holds, records first.
    pub(crate) fn sweep_layers(&self, candidates: &[LayerId]) -> Result<Removed, StoreError> {
        let _deleting = self.catalog.disk.deleting.read();
        match self.unrecord_unused(candidates) {
            Err(error) if error.is_disk_full() => {
                let unused = {
                    let leases = self.lease_table();
                    let is_unused = |id: &LayerId| {
                        let entry = self.catalog.db.read(|records| records.layer(*id))?;
                        Ok::<_, StoreError>(!leases.holds(*id) && entry.is_some_and(|entry| entry.references == 0))
                    };
                    let mut unused = Vec::new();
                    for id in candidates {
                        if is_unused(id)? {
                            unused.push(*id);
                        }
                    }
                    self.layers.distrust(unused.iter().copied());
                    unused
                };
                if !self.make_space(&unused, &[])? {
                    return Err(error);
                }
                self.delete_layers(&self.unrecord_unused(candidates)?)
            }
            gone => self.delete_layers(&gone?),
        }
    }

    fn unrecord_unused(&self, candidates: &[LayerId]) -> Result<Vec<(LayerId, LayerEntry)>, StoreError> {
        let mut leases = self.lease_table();
        let gone = self.catalog.db.write(|transaction| {
            let mut gone = Vec::new();
            for &id in candidates {
                if leases.holds(id) {
                    continue;
                }
                if transaction.layer(id)?.is_some_and(|entry| entry.references == 0) {
                    gone.push((id, unrecord_layer(transaction, id)?));
                }
            }
            Ok::<_, StoreError>(gone)
        })?;
        for (id, _) in &gone {
            leases.orphans.remove(id);
        }
        Ok(gone)
    }

    /// Deletes the files of layers and blobs that are to be removed anyway, where the disk has no space for the record of a
    /// removal, and no reserve. The layers are distrusted, so that they can no longer be used. Returns true if there is something
    /// to retry with.
    pub(crate) fn make_space(&self, layers: &[LayerId], blobs: &[u64]) -> Result<bool, StoreError> {
        if layers.is_empty() && blobs.is_empty() {
            return Ok(false);
        }
        tracing::warn!(
            layers = layers.len(),
            blobs = blobs.len(),
            "the disk has no space for the record of a removal: files go first"
        );
        self.content.delete_blobs(blobs.iter().copied())?;
        self.layers.delete_directories(layers)?;
        // A journalling file system hands freed blocks out again only after the journal's commit.
        self.catalog.disk.sync_file_system()?;
        Ok(true)
    }

    /// Deletes the files of layers whose records have been removed.
    pub(crate) fn delete_layers(&self, gone: &[(LayerId, LayerEntry)]) -> Result<Removed, StoreError> {
        let ids: Vec<LayerId> = gone.iter().map(|(id, _)| *id).collect();
        self.layers.delete_directories(&ids)?;
        self.catalog.refill_reserve();
        Ok(freed(gone))
    }
}
