//! Removing an image: all its names, its record and the layers that nothing else has, in one transaction; then the
//! files, before it returns. Refuses what is mounted; leaves what a lease holds to the end of that lease.

use std::sync::PoisonError;

use oci::Digest;
use redb::WriteTransaction;

use crate::db::{DbError, Records, RecordsMut};
use crate::error::StoreError;
use crate::open::Store;
use crate::records::{ImageEntry, LayerEntry, LayerId, Removed};

impl Store {
    /// Removes an image with all its names. What it alone had is deleted when this returns. An image that is not there
    /// frees nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is mounted, or disk and database errors. After an error of the disk the image is gone
    /// all the same, and the next open deletes what remained.
    pub fn remove_image(&self, id: &Digest) -> Result<Removed, StoreError> {
        let mounting = self.inner.mounting.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = self.inner.live_mounts()?;
        let mut leases = self.inner.lease_table();
        let outcome = self.inner.db.write(|transaction| {
            let Some(entry) = transaction.image(id)? else { return Ok(None) };
            if let Some((target, _)) = mounts.iter().find(|(_, mount)| mount.image == *id) {
                return Err(StoreError::InUse { id: id.clone(), target: target.clone() });
            }
            let unused = unrecord_image(transaction, id, &entry)?;
            let of_mount = |layer: &LayerId| mounts.iter().find(|(_, mount)| mount.layers.contains(layer));
            if let Some((target, _)) = unused.iter().find_map(|(layer, _)| of_mount(layer)) {
                return Err(StoreError::InUse { id: id.clone(), target: target.clone() });
            }
            let mut totals = transaction.totals()?;
            let mut gone = Vec::new();
            let mut kept = Vec::new();
            for (layer, layer_entry) in unused {
                if leases.holds(layer) {
                    kept.push(layer);
                    continue;
                }
                transaction.delete_layer(layer, &layer_entry)?;
                totals.drop_layer(&layer_entry.stats);
                gone.push((layer, layer_entry));
            }
            transaction.put_totals(&totals)?;
            Ok(Some((entry.document_bytes, gone, kept)))
        })?;
        let Some((document_bytes, gone, kept)) = outcome else { return Ok(Removed::default()) };
        leases.orphans.extend(kept);
        drop(leases);
        drop(mounting);
        let mut removed = self.inner.delete_layers(&gone)?;
        removed.freed_bytes += document_bytes;
        Ok(removed)
    }
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
