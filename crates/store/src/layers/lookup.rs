//! Committed layers: finding one for a pull, the directories of an image's layers, and a layer's tar stream.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;

use oci::Digest;

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::layers::Layers;
use crate::layers::shape::Lower;
use crate::maintenance::Lease;
use crate::records::entries::{ImageRecord, Layer, LayerEntry};
use crate::records::tables::Records;
use crate::store::Store;
use crate::view::stack::stack;

impl Store {
    /// Returns the layer with this diff id, as it is on top of the stack `chain_id` (which ends with it); leased when found. A
    /// layer whose directory is missing counts as absent: the next commit replaces it.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn find_layer(&self, lease: &Lease, diff_id: &Digest, chain_id: &Digest) -> Result<Option<Layer>, StoreError> {
        let mut leases = self.maintenance.lease_table();
        let found = self.catalog.db.read(|records| self.layers.usable_layer(records, diff_id, chain_id))?;
        let Some((id, entry)) = found else { return Ok(None) };
        lease.hold(&mut leases, id);
        Ok(Some(entry.layer(id)))
    }

    /// Returns the lower layers of the image's file tree, lowest first: the layers' directories, or EROFS files. A layer that
    /// occurs twice is listed once, in its upper place, and the layers below one that hides everything are left out: overlayfs
    /// can do neither by itself.
    ///
    /// # Errors
    /// The database could not be read, or the image is not there any more.
    pub fn layer_directories(&self, image: &ImageRecord) -> Result<Vec<PathBuf>, StoreError> {
        Ok(self
            .layers
            .lower_layers(&self.layers.image_layers(image)?)
            .iter()
            .map(|lower| lower.path().to_owned())
            .collect())
    }

    /// Returns true if all layer directories of the image exist.
    #[must_use]
    pub fn image_is_whole(&self, image: &ImageRecord) -> bool {
        image.layers.iter().all(|id| self.layers.has_layer(*id))
    }

    /// How many layers are of each shape: directory trees, EROFS files.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn layers_by_shape(&self) -> Result<(u64, u64), StoreError> {
        let layers = self.catalog.db.read(|records| records.layers())?;
        let directories = layers.iter().filter(|(_, entry)| entry.shape.is_dir()).count();
        Ok((directories as u64, (layers.len() - directories) as u64))
    }

    /// Writes the very tar stream from which the layer was unpacked.
    ///
    /// # Errors
    /// [`StoreError::Export`] when the stream cannot be built again or `out` fails.
    pub fn export_layer(&self, layer: &Layer, out: &mut dyn Write) -> Result<(), StoreError> {
        let directory =
            self.catalog.disk.layout.open_layer(layer.id).map_err(|source| {
                StoreError::io("open layer", self.catalog.disk.layout.layer_path(layer.id), source)
            })?;
        layer
            .shape
            .rebuild(directory.as_fd(), out)
            .map_err(|source| StoreError::Export { diff_id: layer.diff_id.clone(), source })
    }
}

impl Layers {
    /// The layers of an image, lowest first, as often as the image has them.
    pub(crate) fn image_layers(&self, image: &ImageRecord) -> Result<Vec<Layer>, StoreError> {
        self.catalog.db.read(|records| {
            let entry = records.image(&image.id)?.ok_or_else(|| StoreError::NotFound(image.id.clone()))?;
            entry.layers.iter().map(|id| Ok(records.layer_of_image(*id)?.layer(*id))).collect()
        })
    }

    /// The same of these layers, lowest first, as the mounter takes it.
    pub(crate) fn lower_layers(&self, layers: &[Layer]) -> Vec<Lower> {
        let lower = |layer: &Layer| layer.shape.lower(&self.catalog.disk.layout.layer_path(layer.id));
        stack(layers).into_iter().filter_map(|id| layers.iter().find(|layer| layer.id == id)).map(lower).collect()
    }

    /// Returns the record for a layer in a stack, also if the layer is missing or damaged.
    fn recorded_layer(
        records: &impl Records,
        diff_id: &Digest,
        chain_id: &Digest,
    ) -> Result<Option<(LayerId, LayerEntry)>, StoreError> {
        // The layer that was made for this very stack is preferred.
        for id in [records.layer_by_chain_id(chain_id)?, records.layer_by_diff_id(diff_id)?].into_iter().flatten() {
            let entry = records.layer(id)?.ok_or_else(|| StoreError::Corrupt(format!("layer {id} has no record")))?;
            if entry.diff_id == *diff_id {
                return Ok(Some((id, entry)));
            }
        }
        Ok(None)
    }

    /// Returns the same, if its directory exists.
    pub(crate) fn usable_layer(
        &self,
        records: &impl Records,
        diff_id: &Digest,
        chain_id: &Digest,
    ) -> Result<Option<(LayerId, LayerEntry)>, StoreError> {
        let found = Self::recorded_layer(records, diff_id, chain_id)?;
        if let Some((id, _)) = &found
            && !self.has_layer(*id)
        {
            tracing::warn!(layer = %id, %diff_id, "the layer's directory is gone: it has to be fetched again");
            return Ok(None);
        }
        Ok(found)
    }
}
