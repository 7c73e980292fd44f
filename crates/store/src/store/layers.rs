//! The public operations on committed layers.

use std::io::Write;
use std::path::PathBuf;

use oci::Digest;

use crate::error::StoreError;
use crate::ingest::layer::LayerIngest;
use crate::maintenance::lease::Lease;
use crate::records::entries::{ImageRecord, Layer};
use crate::store::parts::Store;

impl Store {
    /// The layer with this diff id, as it is on top of the stack `chain_id` (which ends with it); leased when found. A
    /// layer whose directory is gone counts as absent: the next commit replaces it.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn find_layer(&self, lease: &Lease, diff_id: &Digest, chain_id: &Digest) -> Result<Option<Layer>, StoreError> {
        self.parts.maintenance.find_layer(lease, diff_id, chain_id)
    }

    /// The layers of an image, lowest first, as often as the image has them.
    ///
    /// # Errors
    /// The database could not be read, or the image is not there any more.
    pub fn image_layers(&self, image: &ImageRecord) -> Result<Vec<Layer>, StoreError> {
        self.parts.layers.image_layers(image)
    }

    /// The lower layers of the image's file tree, lowest first: the layers' directories, or EROFS files. A layer
    /// that comes twice is there once, in its upper place, and what lies below a layer that hides everything is left out:
    /// overlayfs can do neither by itself.
    ///
    /// # Errors
    /// The database could not be read, or the image is not there any more.
    pub fn layer_directories(&self, image: &ImageRecord) -> Result<Vec<PathBuf>, StoreError> {
        self.parts.layers.layer_directories(image)
    }

    /// Returns true if all layer directories of the image exist.
    #[must_use]
    pub fn image_is_whole(&self, image: &ImageRecord) -> bool {
        self.parts.layers.image_is_whole(image)
    }

    /// How many layers are of each shape: directory trees, EROFS files.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn layers_by_shape(&self) -> Result<(u64, u64), StoreError> {
        self.parts.layers.layers_by_shape()
    }

    /// Writes the very tar stream from which the layer was unpacked.
    ///
    /// # Errors
    /// [`StoreError::Export`] when the stream cannot be built again or `out` fails.
    pub fn export_layer(&self, layer: &Layer, out: &mut dyn Write) -> Result<(), StoreError> {
        self.parts.layers.export_layer(layer, out)
    }

    /// A private directory for one layer. It vanishes with the value.
    ///
    /// # Errors
    /// The directory could not be made.
    pub fn new_layer(&self, lease: &Lease) -> Result<LayerIngest, StoreError> {
        // The lease says that a pull is going on; a layer that is not yet in the store needs no protection.
        let _ = lease;
        self.parts.maintenance.tidy_up();
        self.parts.catalog.db.check_ground()?;
        self.parts.ingests.new_layer(self.parts.ingests.shape)
    }
}
