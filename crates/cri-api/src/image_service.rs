//! [`ImageService`]: the process border behind which images live.

use async_trait::async_trait;

use crate::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, FsInfo, Image, ImageFilter, ImageLayers,
    ImageSpec, ImageStatus, ImageUsage, MountRequest, MountedImage, PullImageRequest, Result, UnfinishedPulls,
};

/// Where images live: the embedded engine, a remote CRI runtime, or a fake.
///
/// The first six calls are CRI's. The rest is what CRI cannot say; their default answer is `None`, "not known", or what
/// CRI says, and nobody asks which implementation stands behind. Dropping a future gives the call up: a pull ends unless others
/// wait for the same one, and leaves nothing half visible.
#[async_trait]
pub trait ImageService: Send + Sync + 'static {
    /// All images, or the one that the filter resolves to.
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>>;

    /// The image that `image` resolves to, if it may be used; absence is `Ok` with `None` in it.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name or an ambiguous short id.
    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus>;

    /// Makes the image present and answers its image id. There is no deadline but the caller's.
    ///
    /// # Errors
    /// By kind: `InvalidArgument` bad reference or unsupported content, `NotFound` no such manifest,
    /// `Unauthenticated` and `PermissionDenied` as the registry says, `ResourceExhausted` too many requests or disk
    /// full, `DataLoss` digest mismatch, `Unavailable` the registry cannot be reached or fails.
    async fn pull_image(&self, request: PullImageRequest) -> Result<String>;

    /// Removes the image with all its names. An absent image is no error. What the next list shows is already
    /// without it.
    async fn remove_image(&self, image: &ImageSpec) -> Result<()>;

    /// Use of the file systems, from accounting and not from a walk.
    async fn image_fs_info(&self) -> Result<FsInfo>;

    /// The verbose status of an image for those who look at it and do not use it: also of one that must not be used, where
    /// the implementation tells these apart.
    ///
    /// # Errors
    /// As [`ImageService::image_status`].
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.image_status(image, true).await
    }

    /// What an image costs on disk, where the implementation knows.
    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        let _ = image;
        Ok(None)
    }

    /// Which layers all images have and what each takes on disk, where the implementation knows.
    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        Ok(None)
    }

    /// Removes images one after the other, as [`ImageService::remove_image`] does each; one that fails does not keep the
    /// others. Answers in the order of the request. An implementation may do it in fewer steps.
    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(images.len());
        for image in images {
            results.push(self.remove_image(image).await);
        }
        results
    }

    /// Pins an image, or takes the pin away, where the implementation keeps pins. `Ok(None)`: it does not.
    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<Option<()>> {
        let _ = (image, pinned);
        Ok(None)
    }

    /// Looks whether everything that is kept is what it was, and repairs it where that is asked for; `Ok(None)`: it is
    /// not kept here. Dropping the future ends the check after the piece that it is at; what was repaired stays so.
    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<Option<CheckReport>> {
        let _ = (request, progress);
        Ok(None)
    }

    /// Brings the layers of images into another shape on the disk, where the implementation has a choice; `Ok(None)`: it has
    /// none. Dropping the future ends it after the piece that it is at; what was converted stays so.
    async fn convert_images(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>> {
        let _ = request;
        Ok(None)
    }

    /// What pulls left that were interrupted, where the implementation keeps something for later ones.
    async fn unfinished_pulls(&self) -> Result<Option<UnfinishedPulls>> {
        Ok(None)
    }

    /// Deletes of that what has been kept for long enough, or all of it, and answers how many bytes came free. What a pull
    /// has taken up again is not touched.
    async fn drop_unfinished_pulls(&self, all: bool) -> Result<Option<u64>> {
        let _ = all;
        Ok(None)
    }

    /// Shows an image's file system on a directory, where the implementation can. `Ok(None)`: it cannot.
    async fn mount_image(&self, request: &MountRequest) -> Result<Option<MountedImage>> {
        let _ = request;
        Ok(None)
    }
}
