//! Removing an image: all its names, its record and the layers that nothing else has, in one transaction; then the
//! files, before it returns. Refuses what is mounted; leaves what a lease holds to the end of that lease. On a disk without
//! any space the files go first, and the image is absent from that moment on.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::mpsc::SendError;

use oci::Digest;
use redb::WriteTransaction;

use crate::content::blobs::release_blobs;
use crate::disk::layout::Layout;
use crate::error::StoreError;
use crate::maintenance::sweep::freed;
use crate::records::db::{DbError, Records, RecordsMut};
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, LayerId, MountEntry, Removed};
use crate::records::shares;
use crate::store::open::{Inner, Store};

/// How many images one transaction takes. It bounds the time for which nobody else can write.
const BATCH: usize = 64;

/// What goes with one image.
#[derive(Default)]
pub(crate) struct Gone {
    layers: Vec<(LayerId, LayerEntry)>,
    blobs: Vec<BlobEntry>,
}

impl Gone {
    fn freed(&self) -> Removed {
        let Removed { freed_bytes, freed_inodes } = freed(&self.layers);
        Removed {
            freed_bytes: freed_bytes + self.blobs.iter().map(|blob| blob.disk_bytes).sum::<u64>(),
            freed_inodes: freed_inodes + self.blobs.len() as u64,
        }
    }

    /// Whether something of it is still there.
    fn has_remains(&self, layout: &Layout) -> bool {
        self.layers.iter().any(|(id, _)| layout.has_remains(*id))
            || self.blobs.iter().any(|blob| layout.has_blob(blob.number))
    }
}

/// Numbers of layers and of blobs whose files are to go.
type Files = (Vec<LayerId>, Vec<u64>);

impl Store {
    /// Removes an image with all its names. What it alone had is deleted when this returns. An image that is not there
    /// frees nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is mounted, or disk and database errors. After an error of the disk the image is gone
    /// all the same, and what remained is deleted later: by the next operation that finds nothing in its way, at the latest by the next open.
    pub fn remove_image(&self, id: &Digest) -> Result<Removed, StoreError> {
        self.remove_images(std::slice::from_ref(id)).swap_remove(0)
    }

    /// Removes images as [`Store::remove_image`] does each, many in one transaction. One that cannot be removed does not
    /// keep the others. Answers in the order of the request; what two of them shared counts for the later one.
    pub fn remove_images(&self, ids: &[Digest]) -> Vec<Result<Removed, StoreError>> {
        self.inner.tidy_up();
        let _deleting = self.inner.deleting.read();
        let mut removals = Vec::with_capacity(ids.len());
        // The directories of one batch go while the next one is unrecorded.
        let deleted = std::thread::scope(|scope| {
            let (unrecorded, gone) = std::sync::mpsc::channel::<Files>();
            let delete_files = |(layers, blobs): Files| {
                let blobs = self.inner.delete_blobs(blobs);
                self.inner.delete_directories(&layers).and(blobs)
            };
            let delete = move || gone.into_iter().map(&delete_files).fold(Ok(()), Result::and);
            // Without a thread all is done here.
            let deleting = std::thread::Builder::new().name("store-delete".into()).spawn_scoped(scope, delete);
            let mut here = Ok(());
            for batch in ids.chunks(BATCH) {
                let begin = removals.len();
                match self.unrecord(batch) {
                    Ok(of_batch) => removals.extend(of_batch),
                    Err(error) if batch.len() == 1 => removals.push(Err(error)),
                    // One by one, so that each error is told with its image.
                    Err(_) => {
                        let one = |id| self.unrecord(std::slice::from_ref(id))?.swap_remove(0);
                        removals.extend(batch.iter().map(one));
                    }
                }
                let gone = || removals[begin..].iter().flatten();
                let layers = gone().flat_map(|gone| gone.layers.iter().map(|(id, _)| *id)).collect();
                let blobs = gone().flat_map(|gone| gone.blobs.iter().map(|blob| blob.number)).collect();
                if let Err(SendError(files)) = unrecorded.send((layers, blobs)) {
                    here = here.and(delete_files(files));
                }
            }
            drop(unrecorded);
            let there = deleting.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            here.and(there)
        });
        self.inner.refill_reserve();
        let outcome = |removal: Result<Gone, StoreError>| {
            let gone = removal?;
            match &deleted {
                Err(error) if gone.has_remains(&self.inner.layout) => {
                    // One failure is told with every image that it may concern.
                    Err(StoreError::io("remove files from", &self.inner.layout.path, error.as_io()))
                }
                _ => Ok(gone.freed()),
            }
        };
        removals.into_iter().map(outcome).collect()
    }

    /// Takes images out of the records, also where the disk has no space for that.
    fn unrecord(&self, ids: &[Digest]) -> Result<Vec<Result<Gone, StoreError>>, StoreError> {
        let done = self.unrecord_batch(ids);
        if done.as_ref().is_err_and(StoreError::is_disk_full) {
            let (layers, blobs) = self.inner.distrust_layers_of(ids)?;
            if self.inner.make_space(&layers, &blobs)? {
                return self.unrecord_batch(ids);
            }
        }
        done
    }

    /// Takes images out of the records. Answers for each the layers that went with it.
    fn unrecord_batch(&self, ids: &[Digest]) -> Result<Vec<Result<Gone, StoreError>>, StoreError> {
        let _mounting = self.inner.mounting.lock();
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
                    removals.push(Ok(Gone::default()));
                    continue;
                };
                let alone = layers_of_it_alone(transaction, &entry)?;
                if let Some(target) = in_use(id, &alone) {
                    removals.push(Err(StoreError::InUse { id: id.clone(), target }));
                    continue;
                }
                let Gone { layers: unused, blobs } = unrecord_image(transaction, id, &entry)?;
                let mut totals = transaction.totals()?;
                let mut gone = Gone { layers: Vec::new(), blobs };
                for (layer, _) in unused {
                    if leases.holds(layer) {
                        kept.push(layer);
                        continue;
                    }
                    // What it shared with one other layer is that one's from now on.
                    shares::leave(transaction, layer)?;
                    let layer_entry = transaction.layer_of_image(layer)?;
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
        Ok(removals)
    }
}

impl Inner {
    /// The layers and blobs that nobody has when all of these images go. From now on nobody uses the layers: the images
    /// are absent, if still recorded. Blobs need no such care, since no image is any worse without.
    fn distrust_layers_of(&self, ids: &[Digest]) -> Result<Files, StoreError> {
        let _mounting = self.mounting.lock();
        let mounts = self.live_mounts()?;
        let leases = self.lease_table();
        let (layers, blobs) = self.db.read(|records| {
            let mut images: BTreeMap<LayerId, u64> = BTreeMap::new();
            let mut of_blobs: BTreeMap<Digest, u64> = BTreeMap::new();
            for id in ids.iter().collect::<BTreeSet<_>>() {
                let Some(entry) = records.image(id)? else { continue };
                if !mounts.iter().any(|(_, mount)| mount.image == *id) {
                    for layer in entry.distinct_layers() {
                        *images.entry(layer).or_default() += 1;
                    }
                    for blob in entry.blobs {
                        *of_blobs.entry(blob).or_default() += 1;
                    }
                }
            }
            let mut alone = Vec::new();
            for (layer, images) in images {
                let in_use = leases.holds(layer) || mounts.iter().any(|(_, mount)| mount.layers.contains(&layer));
                if !in_use && records.layer_of_image(layer)?.references <= images {
                    alone.push(layer);
                }
            }
            let mut blobs = Vec::new();
            for (digest, images) in of_blobs {
                blobs.extend(records.blob(&digest)?.filter(|blob| blob.references <= images).map(|blob| blob.number));
            }
            Ok::<_, StoreError>((alone, blobs))
        })?;
        self.distrust(layers.iter().copied());
        Ok((layers, blobs))
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

/// Takes an image out of the records, and its references from its layers and blobs. Answers the layers that now have
/// none, whose records remain, and the blobs that now have none, whose records are gone.
pub(crate) fn unrecord_image(transaction: &WriteTransaction, id: &Digest, entry: &ImageEntry) -> Result<Gone, DbError> {
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
    Ok(Gone { layers, blobs })
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
