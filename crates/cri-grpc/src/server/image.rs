//! Handlers of ImageService: convert, call, convert. A handler that is dropped drops the service's future.

use std::sync::Arc;

use cri_api::{ImageFilter, ImageService, ImageSpec};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::runtime::{batches, run};
use crate::convert::all;
use crate::pb;

/// The service behind the calls.
pub(super) struct ImageCalls {
    service: Arc<dyn ImageService>,
}

impl ImageCalls {
    pub(super) fn new(service: Arc<dyn ImageService>) -> Self {
        Self { service }
    }

    async fn list(&self, name: &'static str, filter: Option<pb::ImageFilter>) -> Result<Vec<pb::Image>, Status> {
        let filter: Option<ImageFilter> = filter.map(Into::into);
        Ok(all(run(name, "", self.service.list_images(filter.as_ref())).await?))
    }
}

/// The spec of a request; absent means empty, and the service says what it thinks of that.
fn spec(spec: Option<pb::ImageSpec>) -> ImageSpec {
    spec.map(Into::into).unwrap_or_default()
}

#[tonic::async_trait]
impl pb::image_service_server::ImageService for ImageCalls {
    async fn list_images(
        &self,
        request: Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, Status> {
        let images = self.list("ListImages", request.into_inner().filter).await?;
        Ok(Response::new(pb::ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<pb::StreamImagesRequest>,
    ) -> Result<Response<BoxStream<pb::StreamImagesResponse>>, Status> {
        let images = self.list("StreamImages", request.into_inner().filter).await?;
        Ok(Response::new(batches(images, |images| pb::StreamImagesResponse { images })))
    }

    async fn image_status(
        &self,
        request: Request<pb::ImageStatusRequest>,
    ) -> Result<Response<pb::ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let image = spec(request.image);
        let call = self.service.image_status(&image, request.verbose);
        let status = run("ImageStatus", &image.image, call).await?;
        Ok(Response::new(status.into()))
    }

    async fn pull_image(
        &self,
        request: Request<pb::PullImageRequest>,
    ) -> Result<Response<pb::PullImageResponse>, Status> {
        let request = cri_api::PullImageRequest::from(request.into_inner());
        let name = request.image.image.clone();
        let image_ref = run("PullImage", &name, self.service.pull_image(request)).await?;
        Ok(Response::new(pb::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<pb::RemoveImageRequest>,
    ) -> Result<Response<pb::RemoveImageResponse>, Status> {
        let image = spec(request.into_inner().image);
        run("RemoveImage", &image.image, self.service.remove_image(&image)).await?;
        Ok(Response::new(pb::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<pb::ImageFsInfoRequest>,
    ) -> Result<Response<pb::ImageFsInfoResponse>, Status> {
        let info = run("ImageFsInfo", "", self.service.image_fs_info()).await?;
        Ok(Response::new(info.into()))
    }
}
