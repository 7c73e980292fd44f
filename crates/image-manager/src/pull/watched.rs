//! [`WatchedPulls`]: an image service whose pulls are shown on the board, for pulls without a manager. It changes no call
//! and no answer. The binary wraps the service of a server with it.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, ProgressSink, PullImageRequest, Result,
};

use super::board::PullBoard;
use super::in_flight::WantedBy;
use super::progress::Progress;
use crate::Cause;

/// An image service whose pulls are shown.
pub struct WatchedPulls {
    service: Arc<dyn ImageService>,
    board: PullBoard,
    /// The origin of pulls that name no pod.
    by: WantedBy,
}

impl WatchedPulls {
    /// Shows the pulls of `service` on `board`; those that name no pod are wanted by `by`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, board: PullBoard, by: WantedBy) -> Self {
        Self { service, board, by }
    }

    fn wanted_by(&self, request: &PullImageRequest) -> WantedBy {
        match &request.sandbox {
            Some(sandbox) if !sandbox.metadata.name.is_empty() => {
                WantedBy::Pod { namespace: sandbox.metadata.namespace.clone(), name: sandbox.metadata.name.clone() }
            }
            _ => self.by.clone(),
        }
    }
}

#[async_trait]
impl ImageService for WatchedPulls {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.service.list_images(filter).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.service.image_status(image, verbose).await
    }

    async fn pull_image(&self, mut request: PullImageRequest) -> Result<String> {
        let hub = base::single_flight::Hub::<Progress>::default();
        let image = match request.image.user_specified_image.as_str() {
            "" => &request.image.image,
            written => written,
        };
        let mut on_board = self.board.enter(image, hub.clone(), None);
        let waiter = on_board.pull().join(self.wanted_by(&request));
        let (inner, time) = (std::mem::take(&mut request.progress), self.board.time().clone());
        request.progress = ProgressSink::new(move |event| {
            hub.with(|progress| progress.see(&event, time.now()));
            inner.report(event);
        });
        let result = self.service.pull_image(request).await;
        match &result {
            Ok(image_ref) => on_board.pulled(image_ref),
            Err(error) => on_board.failed(Cause::of(error), error.message()),
        }
        drop(waiter);
        result
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.service.remove_image(image).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.service.image_fs_info().await
    }
}
