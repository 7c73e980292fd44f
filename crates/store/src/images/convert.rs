//! Layers from one shape to the other: the tar stream is built again from what the store has, unpacked into a new generation
//! of the layer and held against the diff id; one transaction for an image's layers puts the new ones in the place of the old
//! ones, whose files go then. A kill before it leaves the old ones, a kill after it the new ones; the next open sweeps the
//! rest. What is mounted keeps what it shows. The image service calls it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cri_api::engine::{ConvertedImage, LeftLayer};
use oci::Digest;

use crate::disk::layer::{LayerId, Shape};
use crate::error::StoreError;
use crate::images::commit::{Moved, put_new_layers};
use crate::images::step::{Move, Step};
use crate::ingest::layer::{LayerPlace, UnpackedLayer};
use crate::io_error::is_of_the_medium;
use crate::maintenance::Lease;
use crate::options::{Cancelled, Durability, LayerFormat};
use crate::records::entries::{ImageEntry, LayerEntry};
use crate::records::tables::{Records, RecordsMut};
use crate::store::Store;
use crate::unpack::UnpackError;

/// Why a conversion ended early. Layers that were converted before stay converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The caller cancelled it.
    #[error("the conversion was given up")]
    Cancelled,
    /// Disk or database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A layer that is to be replaced.
struct OldLayer {
    id: LayerId,
    entry: LayerEntry,
}

/// A layer that is to be replaced, and the new one.
struct ConvertedLayer {
    old: OldLayer,
    layer: Arc<UnpackedLayer>,
}

impl Store {
    /// Converts the layers of an image to `to`, for all images that have them; `Auto` is what new layers are made into. The
    /// space for both shapes of the image's layers must be there.
    ///
    /// # Errors
    /// See [`ConvertError`]. The image is whole and as it was then.
    pub fn convert_image(
        &self,
        image: &Digest,
        to: LayerFormat,
        cancelled: Cancelled<'_>,
    ) -> Result<ConvertedImage, ConvertError> {
        let to = match to {
            LayerFormat::Auto => self.ingests.shape(),
            LayerFormat::Erofs | LayerFormat::NestedErofs => Shape::Erofs,
            LayerFormat::Dir => Shape::Dir,
        };
        let lease = Lease::new(Arc::clone(&self.maintenance));
        let mut done = ConvertedImage { id: image.to_string(), ..ConvertedImage::default() };
        let mut new = Vec::new();
        let mounted = self.mounted_layers()?;
        let layers = self.layers_to_convert(&lease, image, to)?;
        let all = layers.len();
        for (number, old) in layers.into_iter().enumerate() {
            let diff_id = old.entry.diff_id.clone();
            if let Some(target) = mounted.get(&old.id) {
                done.left.push(left_layer(&diff_id, is_mounted(target)));
                continue;
            }
            match self.convert_layer(&old, to, cancelled)? {
                Some(layer) => {
                    tracing::info!(%image, %diff_id, layer = number + 1, of = all, "unpacked in its new shape");
                    new.push(ConvertedLayer { old, layer });
                }
                None => {
                    let why = "it cannot be built again from what the store has: `imagelet check --repair` and a pull \
                               make it whole"
                        .to_owned();
                    done.left.push(left_layer(&diff_id, why));
                }
            }
            if cancelled() {
                return Err(ConvertError::Cancelled);
            }
        }
        if !new.is_empty() {
            self.put_in_place(image, &lease, new, &mut done)?;
        }
        Ok(done)
    }
}

fn left_layer(diff_id: &Digest, why: String) -> LeftLayer {
    LeftLayer { diff_id: diff_id.to_string(), why }
}

fn is_mounted(target: &std::path::Path) -> String {
    format!("it is mounted on {}: convert it when it is unmounted", target.display())
}

impl Store {
    /// The layers that a mount shows, and where.
    fn mounted_layers(&self) -> Result<BTreeMap<LayerId, PathBuf>, StoreError> {
        let _mounting = self.mounts.mounting.lock();
        let mut mounted = BTreeMap::new();
        for (target, used) in self.mounts.uses()? {
            mounted.extend(used.layers().iter().map(|id| (*id, target.clone())));
        }
        Ok(mounted)
    }

    /// The layers of an image that have another shape, each once, the lowest first; leased.
    fn layers_to_convert(&self, lease: &Lease, image: &Digest, to: Shape) -> Result<Vec<OldLayer>, StoreError> {
        let mut leases = self.maintenance.lease_table();
        let mut seen = BTreeSet::new();
        let found: Vec<OldLayer> = self.catalog.db.read(|records| {
            let image = records.image(image)?.ok_or_else(|| StoreError::NotFound(image.clone()))?;
            let ids = image.layers.into_iter().filter(|id| seen.insert(*id));
            let old = |id| Ok::<_, StoreError>(OldLayer { id, entry: records.layer_of_image(id)? });
            ids.map(old).collect()
        })?;
        let found: Vec<OldLayer> = found.into_iter().filter(|old| old.entry.shape != to).collect();
        for old in &found {
            lease.hold(&mut leases, old.id);
        }
        Ok(found)
    }

    /// The layer in its new shape, if its stream can be built again.
    fn convert_layer(
        &self,
        old: &OldLayer,
        to: Shape,
        cancelled: Cancelled<'_>,
    ) -> Result<Option<Arc<UnpackedLayer>>, ConvertError> {
        if !self.layers.has_layer(old.id) {
            return Ok(None);
        }
        let directory = match self.catalog.disk.layout.open_layer(old.id) {
            Ok(directory) => directory,
            Err(error) if is_of_the_medium(&error) => return Ok(None),
            Err(error) => return Err(StoreError::io("open", self.catalog.disk.layout.layer_path(old.id), error).into()),
        };
        match self.ingests.copy_of(&directory, old.entry.shape, to, &old.entry.diff_id, cancelled) {
            Err(StoreError::Copy { source: UnpackError::Cancelled, .. }) => Err(ConvertError::Cancelled),
            copied => Ok(copied?),
        }
    }

    /// Makes the new layers those of every image that has the old ones, and deletes these.
    fn put_in_place(
        &self,
        image: &Digest,
        lease: &Lease,
        new: Vec<ConvertedLayer>,
        done: &mut ConvertedImage,
    ) -> Result<(), StoreError> {
        let mut next_layer = self.maintenance.commit.lock();
        self.catalog.ensure_room(0)?;
        let entry =
            self.catalog.db.read(|records| records.image(image)?.ok_or_else(|| StoreError::NotFound(image.clone())))?;
        let steps = self.conversion_steps(&entry, new, &mut next_layer, done)?;
        let moves: Vec<&Move> = steps.iter().filter_map(Step::as_move).collect();
        if moves.is_empty() {
            return Ok(());
        }
        self.patch_implicit(&steps)?;
        let mut moved = Moved::new(self);
        for step in &moves {
            moved.rename(step)?;
        }
        if self.catalog.durability == Durability::Full {
            self.sync_moved()?;
        }
        self.measure(&moves)?;
        // A check searches for directories without records; the old ones are such until they are deleted.
        let _deleting = self.catalog.disk.deleting.read();
        let mounting = self.mounts.mounting.lock();
        let still = self.mounts.view.hold_still()?;
        let uses = self.mounts.uses()?;
        let replaced = |step: &&Move| step.replaces.expect("every one takes another's place");
        for step in &moves {
            if let Some((target, _)) = uses.iter().find(|(_, used)| used.layers().contains(&replaced(step))) {
                // A mount was made in between: all layers are moved back, and can be converted another time.
                let left = |step: &&Move| left_layer(&step.diff_id, is_mounted(target));
                done.left.extend(moves.iter().map(left));
                return Ok(());
            }
        }
        let mut leases = self.maintenance.lease_table();
        let written = self.catalog.db.write(|transaction| {
            let mut before = Vec::new();
            for step in &moves {
                before.push((replaced(step), transaction.layer_of_image(replaced(step))?));
            }
            put_new_layers(transaction, &self.catalog, &steps)?;
            transaction.put_next_layer(*next_layer)?;
            let after = moves.iter().map(|step| transaction.layer_of_image(step.id));
            Ok::<_, StoreError>((before, after.collect::<Result<Vec<_>, _>>()?))
        });
        if matches!(written, Err(StoreError::Unsure(_))) {
            moved.leave();
        }
        let (before, after) = written?;
        self.lease_moved(moved, lease, &mut leases);
        drop((leases, still, mounting, next_layer));
        let gone: Vec<LayerId> = before.iter().map(|(id, _)| *id).collect();
        done.layers += gone.len() as u64;
        for entry in before.iter().map(|(_, entry)| entry) {
            done.bytes_before += entry.stats.disk_bytes;
            done.inodes_before += entry.stats.inodes;
        }
        for entry in &after {
            done.bytes_after += entry.stats.disk_bytes;
            done.inodes_after += entry.stats.inodes;
        }
        if let Err(error) = self.layers.delete_directories(&gone) {
            tracing::warn!(%error, "the old shape of converted layers is kept for a while");
        }
        self.catalog.refill_reserve();
        Ok(())
    }

    /// Decides the step for each layer of the image: those that are converted take the place of the old ones.
    fn conversion_steps(
        &self,
        image: &ImageEntry,
        new: Vec<ConvertedLayer>,
        next_layer: &mut u64,
        done: &mut ConvertedImage,
    ) -> Result<Vec<Step>, StoreError> {
        let mut new: BTreeMap<LayerId, ConvertedLayer> = new.into_iter().map(|new| (new.old.id, new)).collect();
        let mut twins: BTreeMap<LayerId, (LayerId, u64, Shape)> = BTreeMap::new();
        let mut steps = Vec::with_capacity(image.layers.len());
        for id in &image.layers {
            if let Some((id, number, shape)) = twins.get(id) {
                steps.push(Step::Twin { id: *id, number: *number, shape: *shape });
                continue;
            }
            let entry = self.catalog.db.read(|records| records.layer_of_image(*id))?;
            match new.remove(id) {
                Some(ConvertedLayer { layer, .. }) if entry.damaged => {
                    let why = "it was found damaged meanwhile".to_owned();
                    done.left.push(left_layer(&entry.diff_id, why));
                    drop(layer);
                    steps.push(Step::Use(*id, entry.shape));
                }
                Some(ConvertedLayer { layer, .. }) => {
                    let LayerPlace::Private { number, .. } = layer.place() else {
                        return Err(StoreError::Corrupt(format!("the copy of layer {id} has another owner")));
                    };
                    let new_id = LayerId(*next_layer);
                    *next_layer += 1;
                    twins.insert(*id, (new_id, number, layer.shape));
                    let LayerEntry { diff_id, chain_id, .. } = entry;
                    steps.push(Step::Move(Move { id: new_id, number, layer, diff_id, chain_id, replaces: Some(*id) }));
                }
                None => steps.push(Step::Use(*id, entry.shape)),
            }
        }
        // The remaining copies were made for layers that the image no longer has.
        Ok(steps)
    }
}
