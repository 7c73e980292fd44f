//! The removal of records: releases everything that an image references, and returns what is no longer referenced, so that its
//! files can be deleted. Used within a transaction alone.

use oci::Digest;
use redb::WriteTransaction;

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, Removed};
use crate::records::tables::{Records, RecordsMut};

/// Layers and blobs that end with one image.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) layers: Vec<(LayerId, LayerEntry)>,
    pub(crate) blobs: Vec<BlobEntry>,
}

impl Released {
    pub(crate) fn freed(&self) -> Removed {
        let Removed { freed_bytes, freed_inodes } = freed(&self.layers);
        Removed {
            freed_bytes: freed_bytes + self.blobs.iter().map(|blob| blob.disk_bytes).sum::<u64>(),
            freed_inodes: freed_inodes + self.blobs.len() as u64,
        }
    }
}

/// Sums up what these layers gave back.
pub(crate) fn freed(gone: &[(LayerId, LayerEntry)]) -> Removed {
    gone.iter().fold(Removed::default(), |sum, (_, entry)| Removed {
        freed_bytes: sum.freed_bytes + entry.stats.disk_bytes,
        freed_inodes: sum.freed_inodes + entry.stats.inodes,
    })
}

/// Takes a blob out of the records, and from the images that have it.
pub(crate) fn drop_record(transaction: &WriteTransaction, digest: &Digest) -> Result<Option<BlobEntry>, StoreError> {
    let Some(entry) = transaction.blob(digest)? else { return Ok(None) };
    for (id, mut image) in transaction.images()? {
        if image.blobs.remove(digest) {
            image.size = image.size.saturating_sub(entry.disk_bytes);
            transaction.put_image(&id, &image)?;
        }
    }
    transaction.delete_blob(digest)?;
    let mut totals = transaction.totals()?;
    totals.drop_blob(&entry);
    transaction.put_totals(&totals)?;
    Ok(Some(entry))
}

/// Takes one reference from each blob of an image. Those that now have none lose their records, and are answered.
pub(crate) fn release_blobs(transaction: &WriteTransaction, image: &ImageEntry) -> Result<Vec<BlobEntry>, StoreError> {
    let mut gone = Vec::new();
    for digest in &image.blobs {
        // One whose record is lost has nothing to release.
        let Some(mut entry) = transaction.blob(digest)? else { continue };
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            transaction.put_blob(digest, &entry)?;
            continue;
        }
        transaction.delete_blob(digest)?;
        let mut totals = transaction.totals()?;
        totals.drop_blob(&entry);
        transaction.put_totals(&totals)?;
        gone.push(entry);
    }
    Ok(gone)
}

/// Takes an image out of the records, and its references from its layers and blobs. Returns the layers that now have none, whose
/// records remain, and the blobs that now have none, whose records are removed.
pub(crate) fn unrecord_image(
    transaction: &WriteTransaction,
    id: &Digest,
    entry: &ImageEntry,
) -> Result<Released, StoreError> {
    for name in entry.tags.iter().chain(&entry.repo_digests) {
        if transaction.name(name)?.as_ref() == Some(id) {
            transaction.delete_name(name)?;
        }
    }
    let layers = release_layers(transaction, entry)?;
    let blobs = release_blobs(transaction, entry)?;
    transaction.delete_image(id)?;
    let mut totals = transaction.totals()?;
    totals.images = totals.images.saturating_sub(1);
    totals.bytes = totals.bytes.saturating_sub(entry.document_bytes);
    transaction.put_totals(&totals)?;
    Ok(Released { layers, blobs })
}

/// Takes one reference from each layer of an image. Returns those that now have none.
pub(crate) fn release_layers(
    transaction: &WriteTransaction,
    entry: &ImageEntry,
) -> Result<Vec<(LayerId, LayerEntry)>, StoreError> {
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

/// Takes an unreferenced layer out of the records. Returns the record as it was.
pub(crate) fn unrecord_layer(transaction: &WriteTransaction, id: LayerId) -> Result<LayerEntry, StoreError> {
    let entry = transaction.layer_of_image(id)?;
    transaction.delete_layer(id, &entry)?;
    let mut totals = transaction.totals()?;
    totals.drop_layer(&entry.stats);
    transaction.put_totals(&totals)?;
    Ok(entry)
}

/// Returns the layers that no other image references.
pub(crate) fn layers_of_it_alone(
    transaction: &WriteTransaction,
    entry: &ImageEntry,
) -> Result<Vec<LayerId>, StoreError> {
    let mut alone = Vec::new();
    for layer in entry.distinct_layers() {
        if transaction.layer_of_image(layer)?.references <= 1 {
            alone.push(layer);
        }
    }
    Ok(alone)
}
