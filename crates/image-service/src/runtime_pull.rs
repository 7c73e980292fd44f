//! [`Runtime`]: the images of a container runtime. Its own pull follows none of our rules (limits, addresses, redirects, origins of
//! content, signatures), so that pull is behind one function, [`Runtime::pull`], which refuses it where the settings of the node do. All
//! other calls pass. Called by [`crate::runtime_images`] alone.

use std::sync::Arc;

use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};
use oci::Platform;

use crate::destination::runtime_store::check_runtime_platform;
use crate::error;

/// The engine that pulls images for a container runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullEngine {
    /// Our engine if it is certain that the runtime finds the layers that the engine adds, otherwise the runtime.
    #[default]
    Auto,
    /// Our engine.
    Embedded,
    /// The runtime.
    Runtime,
}

/// See the file's head.
pub(crate) struct Runtime {
    images: Arc<dyn ImageService>,
    rule: PullEngine,
    platform: Platform,
    has_policy: bool,
}

impl Runtime {
    pub(crate) fn new(images: Arc<dyn ImageService>, rule: PullEngine, platform: Platform, has_policy: bool) -> Self {
        Self { images, rule, platform, has_policy }
    }

    /// Has the runtime pull an image by its own rules, for the reason `why`.
    ///
    /// # Errors
    /// A signature policy is set, which the runtime would not ask; the engine must be ours; the platform is not the runtime's; the pull
    /// failed.
    pub(crate) async fn pull(&self, request: PullImageRequest, why: &str) -> Result<String> {
        let image = &request.image.image;
        if self.has_policy {
            return Err(error::signature(format!(
                "pull {image}: {why}; the runtime would not ask the signature policy"
            )));
        }
        if self.rule == PullEngine::Embedded {
            let message = format!("pull {image}: not with the pull engine embedded: {why}");
            return Err(Error::new(Kind::FailedPrecondition, message));
        }
        // The runtime knows no platform but its own.
        check_runtime_platform(&self.platform).map_err(|error| error.context(format_args!("pull {image}")))?;
        tracing::debug!(image, why, "the runtime pulls the image");
        self.images.pull_image(request).await
    }

    pub(crate) async fn list(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.images.list_images(filter).await
    }

    pub(crate) async fn status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.images.image_status(image, verbose).await
    }

    pub(crate) async fn remove(&self, image: &ImageSpec) -> Result<()> {
        self.images.remove_image(image).await
    }

    pub(crate) async fn fs_info(&self) -> Result<FsInfo> {
        self.images.image_fs_info().await
    }

    /// The calls that do not pull, for the engine and for the list of layers.
    pub(crate) fn for_questions(&self) -> &Arc<dyn ImageService> {
        &self.images
    }
}
