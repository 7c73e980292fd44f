//! Removing an image: all its names, its record and the layers that nothing else has, in one transaction; then the
//! files, before it returns. Refuses what is mounted; leaves what a lease holds to the end of that lease.

use std::sync::PoisonError;

use oci::Digest;
use redb::WriteTransaction;

use crate::db::{DbError, Records, RecordsMut};
use crate::error::StoreError;
use crate::open::Store;
use crate::records::{ImageEntry, LayerEntry, LayerId, MountEntry, Removed};

/// How many images one transaction takes. It bounds the time for which nobody else can write.
const BATCH: usize = 64;

/// What the records lost with one image.
struct Gone {
    document_bytes: u64,
    layers: Vec<(LayerId, LayerEntry)>,
}

impl Store {
    /// Removes an image with all its names. What it alone had is deleted when this returns. An image that is not there
    /// frees nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is mounted, or disk and database errors. After an error of the disk the image is gone
    /// all the same, and the next open deletes what remained.
    pub fn remove_image(&self, id: &Digest) -> Result<Removed, StoreError> {
        self.remove_batch(std::slice::from_ref(id))?.swap_remove(0)
    }

    /// Removes images as [`Store::remove_image`] does each, many in one transaction. One that cannot be removed does not
    /// keep the others. Answers in the order of the request; what two of them shared counts for the later one.
    pub fn remove_images(&self, ids: &[Digest]) -> Vec<Result<Removed, StoreError>> {
        let mut results = Vec::with_capacity(ids.len());
        for batch in ids.chunks(BATCH) {
            match self.remove_batch(batch) {
                Ok(of_batch) => results.extend(of_batch),
                // One by one, so that each error is told with its image.
                Err(_) => results.extend(batch.iter().map(|id| self.remove_image(id))),
            }
        }
        results
    }

    fn remove_batch(&self, ids: &[Digest]) -> Result<Vec<Result<Removed, StoreError>>, StoreError> {
        let mounting = self.inner.mounting.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = self.inner.live_mounts()?;
        let in_use = |id: &Digest, layers: &[LayerId]| {
            let holds =
                |mount: &MountEntry| mount.image == *id || layers.iter().any(|layer| mount.layers.contains(layer));
            mounts.iter().find(|(_, mount)| holds(mount)).map(|(target, _)| target.clone())
        };
        let mut leases = self.inner.lease_table();
        let (removals, kept) = self.inner.db.write(|transaction| {
            let (mut removals, mut kept) = (Vec::with_capacity(ids.len()), Vec::new());
            for id in ids {
                let Some(entry) = transaction.image(id)? else {
                    removals.push(Ok(Gone { document_bytes: 0, layers: Vec::new() }));
                    continue;
                };
                let alone = layers_of_it_alone(transaction, &entry)?;
                if let Some(target) = in_use(id, &alone) {
                    removals.push(Err(StoreError::InUse { id: id.clone(), target }));
                    continue;
                }
                let unused = unrecord_image(transaction, id, &entry)?;
                let mut totals = transaction.totals()?;
                let mut gone = Gone { document_bytes: entry.document_bytes, layers: Vec::new() };
                for (layer, layer_entry) in unused {
                    if leases.holds(layer) {
                        kept.push(layer);
                        continue;
                    }
                    transaction.delete_layer(layer, &layer_entry)?;
                    totals.drop_layer(&layer_entry.stats);
                    gone.layers.push((layer, layer_entry));
                }
                transaction.put_totals(&totals)?;
                removals.push(Ok(gone));
            }
            Ok::<_, StoreError>((removals, kept))
        })?;
        leases.orphans.extend(kept);
        drop(leases);
        drop(mounting);
        let delete = |gone: Gone| {
            let mut removed = self.inner.delete_layers(&gone.layers)?;
            removed.freed_bytes += gone.document_bytes;
            Ok(removed)
        };
        Ok(removals.into_iter().map(|removal| removal.and_then(delete)).collect())
    }
}

/// The layers that nobody has when this image goes.
fn layers_of_it_alone(transaction: &WriteTransaction, entry: &ImageEntry) -> Result<Vec<LayerId>, DbError> {
    let mut alone = Vec::new();
    for layer in entry.distinct_layers() {
        if transaction.layer_of_image(layer)?.references <= 1 {
            alone.push(layer);
        }
    }
    Ok(alone)
}

/// Takes an image out of the records, and its references from its layers. Answers the layers that now have none; their
/// records remain.
pub(crate) fn unrecord_image(
    transaction: &WriteTransaction,
    id: &Digest,
    entry: &ImageEntry,
) -> Result<Vec<(LayerId, LayerEntry)>, DbError> {
    for name in entry.tags.iter().chain(&entry.repo_digests) {
        if transaction.name(name)?.as_ref() == Some(id) {
            transaction.delete_name(name)?;
        }
    }
    let unused = release_layers(transaction, entry)?;
    transaction.delete_image(id)?;
    let mut totals = transaction.totals()?;
    totals.images = totals.images.saturating_sub(1);
    totals.bytes = totals.bytes.saturating_sub(entry.document_bytes);
    transaction.put_totals(&totals)?;
    Ok(unused)
}

/// Takes one reference from each layer of an image. Answers those that now have none.
pub(crate) fn release_layers(
    transaction: &WriteTransaction,
    entry: &ImageEntry,
) -> Result<Vec<(LayerId, LayerEntry)>, DbError> {
    let mut unused = Vec::new();
    for layer in entry.distinct_layers() {
        let mut layer_entry = transaction.layer_of_image(layer)?;
        layer_entry.references = layer_entry.references.saturating_sub(1);
        transaction.put_layer(layer, &layer_entry)?;
        if layer_entry.references == 0 {
            unused.push((layer, layer_entry));
        }
    }
    Ok(unused)
}
