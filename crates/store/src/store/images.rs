//! The public operations on images.

use oci::Digest;

use crate::error::{CommitError, ResolveError, StoreError};
use crate::images::convert::{Conversion, ConvertError};
use crate::images::image_commit::ImageCommit;
use crate::maintenance::lease::Lease;
use crate::options::LayerFormat;
use crate::records::accounting::LayersOfImages;
use crate::records::entries::{ImageRecord, Removed, Totals};
use crate::store::parts::Store;

impl Store {
    /// Bytes that only this image has, and bytes that it shares with other images. Their sum is the image's size.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn usage(&self, id: &Digest) -> Result<Option<(u64, u64)>, StoreError> {
        self.parts.catalog.usage(id)
    }

    /// How many bytes of layers can still be written: what the file system has free, less what the store keeps for its
    /// records and for removals. `None`: the file system does not say.
    ///
    /// # Errors
    /// The file system could not be asked.
    pub fn room(&self) -> Result<Option<u64>, StoreError> {
        self.parts.catalog.room()
    }

    /// Lists the layers of each image by number, and the bytes of each layer on the disk.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn layers_of_images(&self) -> Result<LayersOfImages, StoreError> {
        self.parts.catalog.layers_of_images()
    }

    /// Returns what all images take together. One record is read, however many images there are.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn totals(&self) -> Result<Totals, StoreError> {
        self.parts.catalog.totals()
    }

    /// All images, ordered by id.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn images(&self) -> Result<Vec<ImageRecord>, StoreError> {
        self.parts.catalog.images()
    }

    /// The image with this id.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn image(&self, id: &Digest) -> Result<Option<ImageRecord>, StoreError> {
        self.parts.catalog.image(id)
    }

    /// Gives an image one more name, which another image loses if it had it. `name` is taken in any spelling, and gets
    /// the default tag where it has none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a name that is none or has a digest.
    pub fn tag(&self, id: &Digest, name: &str) -> Result<(), StoreError> {
        self.parts.catalog.tag(id, name)
    }

    /// Says whether an image must be kept.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a database error.
    pub fn set_pinned(&self, id: &Digest, pinned: bool) -> Result<(), StoreError> {
        self.parts.catalog.set_pinned(id, pinned)
    }

    /// The image that `text` means: an id with or without `sha256:`, `name`, `name:tag`, `name@digest`,
    /// `name:tag@digest` (the digest decides), or the beginning of an id, of three digits or more.
    ///
    /// # Errors
    /// [`ResolveError::Empty`], [`ResolveError::Ambiguous`], or the database could not be read.
    pub fn resolve(&self, text: &str) -> Result<Option<ImageRecord>, ResolveError> {
        self.parts.catalog.resolve(text)
    }

    /// Makes an image visible, or gives an image that is there its new names. All layers that the store had must have
    /// been found through `lease`.
    ///
    /// # Errors
    /// See [`CommitError`]. The store is then as it was before.
    pub fn commit_image(&self, lease: &Lease, commit: ImageCommit) -> Result<ImageRecord, CommitError> {
        self.parts.images.commit_image(lease, commit)
    }

    /// Converts the layers of an image to `to`, for all images that have them; `Auto` is what new layers are made into. The
    /// space for both shapes of the image's layers must be there.
    ///
    /// # Errors
    /// See [`ConvertError`]. The image is whole and as it was then.
    pub fn convert_image(
        &self,
        image: &Digest,
        to: LayerFormat,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Conversion, ConvertError> {
        self.parts.images.convert_image(image, to, cancelled)
    }

    /// Removes an image with all its names. What it alone had is deleted when this returns. An image that is not there
    /// frees nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is mounted, or disk and database errors. After an error of the disk the image is gone
    /// all the same, and what remained is deleted later: by the next operation that finds nothing in its way, at the latest by the next open.
    pub fn remove_image(&self, id: &Digest) -> Result<Removed, StoreError> {
        self.parts.images.remove_image(id)
    }

    /// Removes images as [`Store::remove_image`] does each, many in one transaction. One that cannot be removed does not
    /// keep the others. Answers in the order of the request; what two of them shared counts for the later one.
    pub fn remove_images(&self, ids: &[Digest]) -> Vec<Result<Removed, StoreError>> {
        self.parts.images.remove_images(ids)
    }
}
