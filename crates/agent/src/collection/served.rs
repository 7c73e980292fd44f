//! [`Served`]: the images as clients of an agent see them: what is pinned here is pinned for them, too, so that a kubelet in
//! front leaves it alone. Where the agent collects, a pull that runs out of space has it done and is tried once more.
//! Decides neither. Called by `serve`.

use std::sync::Arc;

use async_trait::async_trait;
use base::lock::RwLock;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};
use image_manager::gc::{ImageGcManager, Pins};
use image_manager::{Cause, ReclaimSpace as _};

/// The current pins, for lists of images that are made while a collection runs.
pub(super) type Board = Arc<RwLock<Arc<Pins>>>;

/// An image service with the pins of its collection.
pub struct Served {
    service: Arc<dyn ImageService>,
    pins: Board,
    manager: Arc<ImageGcManager>,
    /// True if this process collects and may free space for a pull; otherwise another process collects.
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

/// Marks the pinned ones of a list.
pub(super) fn mark_all(pins: &Pins, images: &mut [Image]) {
    images.iter_mut().for_each(|image| mark(pins, image));
}

fn mark(pins: &Pins, image: &mut Image) {
    image.pinned = image.pinned || pins.iter().any(|pattern| pattern.matches(image));
}

#[async_trait]
impl ImageService for Served {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let mut images = self.service.list_images(filter).await?;
        mark_all(&self.pins(), &mut images);
        Ok(images)
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let mut status = self.service.image_status(image, verbose).await?;
        if let Some(image) = &mut status.image {
            mark(&self.pins(), image);
        }
        Ok(status)
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        // An image is not collected while it is pulled, nor directly afterwards: its container does not exist yet.
        let _hold = self.manager.hold(&request.image.reference_or_id());
        let error = match self.service.pull_image(request.clone()).await {
            Err(error) if self.collects && Cause::of(&error) == Cause::DiskFull => error,
            result => return result,
        };
        let image = &request.image.image;
        tracing::info!(image, "no space left for the pull: images that nothing needs are removed");
        let room = self.manager.reclaim_space(error.needed_bytes()).await;
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
}
