//! [`ImageEngine`]: the calls that CRI does not have.

use std::path::Path;

use crate::{Error, ImageSpec, ImageStatus, Kind, Result};
use async_trait::async_trait;

use crate::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageLayers,
    ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage, PodmanStoreReport,
    PodmanStoreRequest, UnfinishedPulls,
};

/// A store of images that is ours: in this process, or in the process that owns its root.
///
/// The images are those of the accompanying [`ImageService`](crate::ImageService). Errors have the kinds of that
/// trait. Dropping a future cancels the call.
#[async_trait]
pub trait ImageEngine: Send + Sync + 'static {
    /// Returns the verbose status of an image for inspection rather than for use: also of one that the signature policy
    /// refuses.
    ///
    /// # Errors
    /// Those of [`ImageService::image_status`](crate::ImageService::image_status).
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus>;

    /// Returns the bytes that an image takes on disk, or `None` for an absent image.
    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>>;

    /// Returns the layers of all images, and the bytes that each layer takes on disk.
    async fn image_layers(&self) -> Result<ImageLayers>;

    /// Removes images in one step, as [`ImageService::remove_image`](crate::ImageService::remove_image) does each; one that
    /// fails does not keep the others. Results are in the order of the request.
    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>>;

    /// Pins an image, or removes its pin.
    ///
    /// # Errors
    /// `NotFound` for an absent image.
    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<()>;

    /// Gives an image one more name, which another image loses if it had it. Returns the name in normal form. This does
    /// not change who may use the image.
    ///
    /// # Errors
    /// `NotFound` for an absent image, `InvalidArgument` for a name that is none or has a digest, `FailedPrecondition` where the
    /// signature policy refuses the image by that name.
    async fn tag_image(&self, _image: &ImageSpec, name: &str) -> Result<String> {
        Err(Error::new(Kind::Unimplemented, format!("{name}: this store gives no names")))
    }

    /// Takes names from an image, or all tags if none are given. The image stays, also without a name. Returns the names in
    /// normal form.
    ///
    /// # Errors
    /// `NotFound` for an absent image, and for a name that it does not have; then nothing is taken.
    async fn untag_image(&self, image: &ImageSpec, _names: &[String]) -> Result<Vec<String>> {
        Err(Error::new(Kind::Unimplemented, format!("{}: this store takes no names", image.image)))
    }

    /// Returns the documents of an image as pulled, and its names, or `None` for an absent image.
    async fn image_documents(&self, image: &ImageSpec) -> Result<Option<ImageDocuments>> {
        Err(Error::new(Kind::Unimplemented, format!("{}: this store shows no documents", image.image)))
    }

    /// Checks that the store is what its records say, and repairs it on request. Dropping the future ends the check after the
    /// current piece; repairs made so far stay.
    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<CheckReport>;

    /// Converts the layers of images to another shape on disk. Dropping the future ends the conversion after the current
    /// piece; layers converted so far stay so.
    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport>;

    /// Makes or removes the view of the store that podman and CRI-O read.
    ///
    /// # Errors
    /// `PermissionDenied` for the store of an ordinary user, `FailedPrecondition` if another program's file or
    /// directory is in its place, and if podman uses what is to be removed.
    async fn podman_store(&self, _request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
        Err(Error::new(Kind::Unimplemented, "this store has no view for podman"))
    }

    /// Returns the layers and blobs that interrupted pulls left for later ones.
    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls>;

    /// Deletes what interrupted pulls left: that which has been kept long enough, or all of it. Returns the bytes freed. What a
    /// running pull has resumed stays.
    async fn drop_unfinished_pulls(&self, all: bool) -> Result<u64>;

    /// Mounts an image's file system on a directory.
    ///
    /// # Errors
    /// `NotFound` for an absent image, `FailedPrecondition` for one that must not be used and for a directory that cannot be
    /// mounted on, `PermissionDenied` where the process may not mount.
    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage>;

    /// Returns the current mounts of images, by directory.
    async fn mounts(&self) -> Result<Vec<ImageMount>>;

    /// Leases the layers of an image, by name or id, or of one layer, by its digest, for a process that reads them in the
    /// store.
    ///
    /// # Errors
    /// `NotFound` for an absent image or layer, and for one that is not whole.
    async fn lease_layers(&self, text: &str) -> Result<LayerLease>;

    /// Imports the images of an archive: an OCI layout (directory or tar), a docker archive, or a directory as skopeo's `dir:`
    /// writes it. A file may be compressed with gzip, zstd or xz, and may be a pipe.
    ///
    /// # Errors
    /// Those of a pull; they do not name the archive.
    async fn import_images(&self, path: &Path, options: ImportOptions) -> Result<ImportReport>;

    /// Exports images to `path`, which appears when it is whole. A symbolic link is followed; a device or a pipe is written
    /// to.
    ///
    /// # Errors
    /// `NotFound` for an absent image, `FailedPrecondition` for a directory that is not empty, `DataLoss` for a damaged layer.
    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()>;
}
