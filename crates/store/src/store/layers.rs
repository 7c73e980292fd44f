//! Operations on committed layers: finding one for a pull, the directories of an image's layers, and a layer's tar stream.

use crate::error::StoreError;
use crate::maintenance::Lease;
use crate::records::entries::{ImageRecord, Layer};
use crate::records::tables::Records;
use crate::store::Store;
use oci::Digest;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;

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
