//! [`ImageService`]: the process border behind which images live.

use async_trait::async_trait;

use crate::{FsInfo, Image, ImageFilter, ImageSpec, ImageStatus, PullImageRequest, Result};

/// Service that keeps images: the embedded engine, a remote CRI runtime, or a fake.
///
/// The calls are exactly those of CRI `runtime.v1`. Dropping a future cancels the call: a pull ends unless other callers
/// wait for the same one, and leaves no partial result visible.
#[async_trait]
pub trait ImageService: Send + Sync + 'static {
    /// Returns all images, or those that the filter selects.
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>>;

    /// Returns the image that `image` resolves to, if it may be used; absence is `Ok` with `None` in it.
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
}
