//! Removing an image: all its names, its record and the layers that nothing else has, in one transaction; then the
//! files, before it returns. Refuses what is mounted; leaves what a lease holds to the end of that lease. On a disk without
//! any space the files go first, and the image is absent from that moment on.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::mpsc::SendError;

use oci::Digest;

use crate::disk::layer::LayerId;
use crate::disk::layout::Layout;
use crate::error::StoreError;
use crate::mount::mounts::LayerUse;
use crate::records::entries::Removed;
use crate::records::release::{Released, layers_of_it_alone, unrecord_image, unrecord_layer};
use crate::records::tables::Records;
use crate::store::Store;

/// How many images one transaction removes. It bounds the time for which no other writer can proceed.
const BATCH: usize = 64;

/// Numbers of layers and of blobs whose files are to go.
type FilesToDelete = (Vec<LayerId>, Vec<u64>);

impl Store {
    /// Removes an image with all its names. What it alone had is deleted when this returns. An image that is not there
    /// frees nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is mounted, or disk and database errors. After an error of the disk the image is removed all
    /// the same, and its remaining files are deleted later: by the next operation that can, at the latest by the next open.
    pub fn remove_image(&self, id: &Digest) -> Result<Removed, StoreError> {
        self.remove_images(std::slice::from_ref(id)).swap_remove(0)
    }

    /// Removes images as [`Store::remove_image`] does each, many in one transaction. One that cannot be removed does not prevent
    /// the removal of the rest. The results are in the order of the request; content that two of them shared counts for the later
    /// one.
    pub fn remove_images(&self, ids: &[Digest]) -> Vec<Result<Removed, StoreError>> {
        self.maintenance.tidy_up();
        let _deleting = self.catalog.disk.deleting.read();
        let mut removals = Vec::with_capacity(ids.len());
        // The directories of one batch go while the next one is unrecorded.
        let deleted = std::thread::scope(|scope| {
            let (unrecorded, gone) = std::sync::mpsc::channel::<FilesToDelete>();
            let delete_files = |(layers, blobs): FilesToDelete| {
                let blobs = self.content.delete_blobs(blobs);
                self.layers.delete_directories(&layers).and(blobs)
            };
            let delete = move || gone.into_iter().map(&delete_files).fold(Ok(()), Result::and);
            // Without a thread this thread deletes everything.
            let deleting = std::thread::Builder::new().name("store-delete".into()).spawn_scoped(scope, delete);
            let mut here = Ok(());
            for batch in ids.chunks(BATCH) {
                let begin = removals.len();
                match self.unrecord(batch) {
                    Ok(of_batch) => removals.extend(of_batch),
                    Err(error) if batch.len() == 1 => removals.push(Err(error)),
                    // One by one, so that each error is reported for its image.
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
        self.catalog.refill_reserve();
        let outcome = |removal: Result<Released, StoreError>| {
            let gone = removal?;
            match &deleted {
                Err(error) if has_remains(&gone, &self.catalog.disk.layout) => {
                    // One failure is reported for every image that it may concern.
                    Err(StoreError::io("remove files from", &self.catalog.disk.layout.path, error.as_io()))
                }
                _ => Ok(gone.freed()),
            }
        };
        removals.into_iter().map(outcome).collect()
    }

    /// Takes images out of the records, also where the disk has no space for that.
    fn unrecord(&self, ids: &[Digest]) -> Result<Vec<Result<Released, StoreError>>, StoreError> {
        let done = self.unrecord_batch(ids);
        if done.as_ref().is_err_and(StoreError::is_disk_full) {
            let (layers, blobs) = self.distrust_layers_of(ids)?;
            if self.maintenance.make_space(&layers, &blobs)? {
                return self.unrecord_batch(ids);
            }
        }
        done
    }

    /// Takes images out of the records. Returns for each the layers that were released with it.
    fn unrecord_batch(&self, ids: &[Digest]) -> Result<Vec<Result<Released, StoreError>>, StoreError> {
        let _mounting = self.mounts.mounting.lock();
        // Podman makes no container of what it was shown before, until the view is without these images.
        let _still = self.mounts.view.hold_still()?;
        let uses = self.mounts.uses()?;
        let in_use = |id: &Digest, layers: &[LayerId]| {
            let holds = |used: &LayerUse| used.shows(id) || layers.iter().any(|layer| used.layers().contains(layer));
            uses.iter().find(|(_, used)| holds(used)).map(|(place, used)| match used {
                LayerUse::Mount(_) => StoreError::InUse { id: id.clone(), target: place.clone() },
                LayerUse::Podman(_) => StoreError::InUseByPodman { id: id.clone(), place: place.clone() },
            })
        };
        let mut leases = self.maintenance.lease_table();
        let (removals, kept) = self.catalog.db.write(|transaction| {
            let (mut removals, mut kept) = (Vec::with_capacity(ids.len()), Vec::new());
            for id in ids {
                let Some(entry) = transaction.image(id)? else {
                    removals.push(Ok(Released::default()));
                    continue;
                };
                let alone = layers_of_it_alone(transaction, &entry)?;
                if let Some(refusal) = in_use(id, &alone) {
                    removals.push(Err(refusal));
                    continue;
                }
                let Released { layers: unused, blobs } = unrecord_image(transaction, id, &entry)?;
                let mut gone = Released { layers: Vec::new(), blobs };
                for (layer, _) in unused {
                    if leases.holds(layer) {
                        kept.push(layer);
                        continue;
                    }
                    gone.layers.push((layer, unrecord_layer(transaction, layer)?));
                }
                removals.push(Ok(gone));
            }
            Ok::<_, StoreError>((removals, kept))
        })?;
        leases.orphans.extend(kept);
        Ok(removals)
    }

    /// Returns the layers and blobs that no image references once all of these images are removed. From now on the layers cannot
    /// be used: the images are absent, if still recorded. Blobs need no such care, since an image does not need them.
    fn distrust_layers_of(&self, ids: &[Digest]) -> Result<FilesToDelete, StoreError> {
        let _mounting = self.mounts.mounting.lock();
        let uses = self.mounts.uses()?;
        let leases = self.maintenance.lease_table();
        let (layers, blobs) = self.catalog.db.read(|records| {
            let mut images: BTreeMap<LayerId, u64> = BTreeMap::new();
            let mut of_blobs: BTreeMap<Digest, u64> = BTreeMap::new();
            for id in ids.iter().collect::<BTreeSet<_>>() {
                let Some(entry) = records.image(id)? else { continue };
                if !uses.iter().any(|(_, used)| used.shows(id)) {
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
                let in_use = leases.holds(layer) || uses.iter().any(|(_, used)| used.layers().contains(&layer));
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
        self.layers.distrust(layers.iter().copied());
        self.mounts.view.follow();
        Ok((layers, blobs))
    }
}

/// Returns true if something of it is still there.
fn has_remains(gone: &Released, layout: &Layout) -> bool {
    gone.layers.iter().any(|(id, _)| layout.has_remains(*id))
        || gone.blobs.iter().any(|blob| layout.has_blob(blob.number))
}
