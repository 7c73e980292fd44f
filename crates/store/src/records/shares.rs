//! The disk usage that layers share: for every set of layers that share files, the bytes and inodes that are freed when the last
//! sharer is removed. A layer's own numbers are those that are freed with it alone, so that all sums stay right, in whatever
//! order layers are added and removed. [`crate::ingest::share`] creates the shares that are counted; a commit adds a layer to
//! them, a removal takes it out.

use redb::WriteTransaction;

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::ImageEntry;
use crate::records::entries::{LayerSet, Share};
use crate::records::tables::{Records, RecordsMut};

/// Returns the bytes on disk of an image: documents, layers, kept blobs, and shares of its layers with other layers.
pub(crate) fn size_of(records: &impl Records, image: &ImageEntry) -> Result<u64, StoreError> {
    let layers = image.distinct_layers();
    let mut size = image.document_bytes;
    for layer in &layers {
        size += records.layer_of_image(*layer)?.stats.disk_bytes;
    }
    for digest in &image.blobs {
        size += records.blob(digest)?.map_or(0, |blob| blob.disk_bytes);
    }
    let shares = records.shares()?;
    Ok(size + shares.iter().filter(|(set, _)| !set.is_disjoint(&layers)).map(|(_, share)| share.bytes).sum::<u64>())
}

/// Lets a new layer, which is recorded, share with layers of which some may have been removed.
pub(crate) fn join(
    transaction: &WriteTransaction,
    new: LayerId,
    joins: &[(LayerSet, Share)],
) -> Result<(), StoreError> {
    for (set, share) in joins {
        let mut there = LayerSet::new();
        for id in set {
            if transaction.layer(*id)?.is_some_and(|entry| !entry.damaged) {
                there.insert(*id);
            }
        }
        match there.iter().collect::<Vec<_>>().as_slice() {
            [] => {
                give(transaction, new, *share)?;
                let mut totals = transaction.totals()?;
                totals.bytes += share.bytes;
                totals.inodes += share.inodes;
                transaction.put_totals(&totals)?;
                continue;
            }
            [only] => {
                if let Some(mut entry) = transaction.layer(**only)? {
                    entry.stats.take(*share);
                    transaction.put_layer(**only, &entry)?;
                }
            }
            _ => {
                let left = transaction.share(&there)?.minus(*share);
                transaction.put_share(&there, left)?;
            }
        }
        there.insert(new);
        let more = transaction.share(&there)?.plus(*share);
        transaction.put_share(&there, more)?;
    }
    Ok(())
}

/// Takes a layer out of all its shares, before its record is removed: a share of only one remaining layer becomes that layer's
/// own usage.
pub(crate) fn leave(transaction: &WriteTransaction, id: LayerId) -> Result<(), StoreError> {
    for (mut set, share) in transaction.shares()? {
        if !set.contains(&id) {
            continue;
        }
        transaction.put_share(&set, Share::default())?;
        set.remove(&id);
        match set.iter().collect::<Vec<_>>().as_slice() {
            [] => {}
            [only] => give(transaction, **only, share)?,
            _ => {
                let more = transaction.share(&set)?.plus(share);
                transaction.put_share(&set, more)?;
            }
        }
    }
    Ok(())
}

fn give(transaction: &WriteTransaction, id: LayerId, share: Share) -> Result<(), StoreError> {
    if let Some(mut entry) = transaction.layer(id)?
        && !share.is_nothing()
    {
        entry.stats.give(share);
        transaction.put_layer(id, &entry)?;
    }
    Ok(())
}
