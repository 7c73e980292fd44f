//! [`Served`]: the images as clients of an agent see them: what is pinned here is pinned for them, too, so that a kubelet in
//! front leaves it alone. Where the agent collects, a pull that runs out of space has it done and is tried once more.
//! Decides neither. Called by `serve`.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, FsInfo, Image, ImageFilter, ImageLayers,
    ImageService, ImageSpec, ImageStatus, ImageUsage, MountRequest, MountedImage, PullImageRequest, Result,
    UnfinishedPulls,
};
use image_manager::gc::{ImageGcManager, Pins};
use image_manager::{Cause, MakeRoom as _};

use super::Board;

/// An image service with the pins of its collection.
pub(crate) struct Served {
    service: Arc<dyn ImageService>,
    pins: Board,
    manager: Arc<ImageGcManager>,
    /// Whether it may be asked for room; otherwise somebody else collects.
    collects: bool,
}

impl Served {
    pub(super) fn new(
        service: Arc<dyn ImageService>,
        pins: Board,
        manager: Arc<ImageGcManager>,
        collects: bool,
    ) -> Self {
        Self { service, pins, manager, collects }
    }

    fn pins(&self) -> Arc<Pins> {
        Arc::clone(&self.pins.read())
    }
}

fn mark(pins: &Pins, image: &mut Image) {
    image.pinned = image.pinned || pins.iter().any(|pattern| pattern.matches(image));
}

#[async_trait]
impl ImageService for Served {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let mut images = self.service.list_images(filter).await?;
        let pins = self.pins();
        images.iter_mut().for_each(|image| mark(&pins, image));
        Ok(images)
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let mut status = self.service.image_status(image, verbose).await?;
        if let Some(image) = &mut status.image {
            mark(&self.pins(), image);
        }
        Ok(status)
    }

    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        let mut status = self.service.inspect_image(image).await?;
        if let Some(image) = &mut status.image {
            mark(&self.pins(), image);
        }
        Ok(status)
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        // Nobody collects what is about to come, nor what has just come: its container is not there yet.
        let _hold = self.manager.hold(&request.image.image);
        let error = match self.service.pull_image(request.clone()).await {
            Err(error) if self.collects && Cause::of(&error) == Cause::DiskFull => error,
            result => return result,
        };
        let image = &request.image.image;
        tracing::info!(image, "no space left for the pull: images that nothing needs are removed");
        let room = self.manager.make_room(error.needed_bytes()).await;
        if room.removed == 0 && !room.enough {
            return Err(error);
        }
        self.service.pull_image(request).await
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.service.remove_image(image).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.service.image_fs_info().await
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        self.service.image_usage(image).await
    }

    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        self.service.image_layers().await
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        self.service.remove_images(images).await
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<Option<()>> {
        self.service.pin_image(image, pinned).await
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<Option<CheckReport>> {
        self.service.check_images(request, progress).await
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>> {
        self.service.convert_images(request).await
    }

    async fn unfinished_pulls(&self) -> Result<Option<UnfinishedPulls>> {
        self.service.unfinished_pulls().await
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<Option<u64>> {
        self.service.drop_unfinished_pulls(all).await
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<Option<MountedImage>> {
        self.service.mount_image(request).await
    }
}
