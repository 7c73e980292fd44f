//! The calls of [`SharedStore`]: each is sent to the process that owns the store, and retried with the next owner if that process ended
//! without an answer. Has no rules of its own.

use std::path::Path;

use async_trait::async_trait;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage,
    PodmanStoreReport, PodmanStoreRequest, UnfinishedPulls,
};
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};

use super::shared_store::{SharedStore, StoreOwner, can_be_repeated};

/// Returns the answer of the process that owns the store.
macro_rules! ask {
    ($shared:ident, $store:ident => $call:expr) => {
        loop {
            let owner = $shared.owner();
            let answer = match &owner {
                StoreOwner::Own { engine: $store, .. } => $call.await,
                StoreOwner::Other { remote: $store, .. } => $call.await,
            };
            if let Some(answer) = $shared.answer_or_retry(&owner, answer).await {
                break answer;
            }
        }
    };
}

#[async_trait]
impl ImageService for SharedStore {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        ask!(self, store => store.list_images(filter))
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        ask!(self, store => store.image_status(image, verbose))
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        ask!(self, store => store.pull_image(request.clone()))
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        ask!(self, store => store.remove_image(image))
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        ask!(self, store => store.image_fs_info())
    }
}

#[async_trait]
impl ImageEngine for SharedStore {
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        ask!(self, store => store.inspect_image(image))
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        ask!(self, store => store.image_usage(image))
    }

    async fn image_layers(&self) -> Result<ImageLayers> {
        ask!(self, store => store.image_layers())
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        loop {
            let owner = self.owner();
            let results = match &owner {
                StoreOwner::Own { engine, .. } => engine.remove_images(images).await,
                StoreOwner::Other { remote, .. } => remote.remove_images(images).await,
            };
            let first = results.first().and_then(|result| result.clone().err()).map_or(Ok(()), Err);
            if self.answer_or_retry(&owner, first).await.is_some() {
                return results;
            }
        }
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<()> {
        ask!(self, store => store.pin_image(image, pinned))
    }

    async fn tag_image(&self, image: &ImageSpec, name: &str) -> Result<String> {
        ask!(self, store => store.tag_image(image, name))
    }

    async fn untag_image(&self, image: &ImageSpec, names: &[String]) -> Result<Vec<String>> {
        ask!(self, store => store.untag_image(image, names))
    }

    async fn image_documents(&self, image: &ImageSpec) -> Result<Option<ImageDocuments>> {
        ask!(self, store => store.image_documents(image))
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<CheckReport> {
        ask!(self, store => store.check_images(request, progress))
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport> {
        ask!(self, store => store.convert_images(request))
    }

    async fn podman_store(&self, request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
        ask!(self, store => store.podman_store(request))
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        ask!(self, store => store.unfinished_pulls())
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<u64> {
        ask!(self, store => store.drop_unfinished_pulls(all))
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage> {
        ask!(self, store => store.mount_image(request))
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        ask!(self, store => store.mounts())
    }

    async fn lease_layers(&self, text: &str) -> Result<LayerLease> {
        ask!(self, store => store.lease_layers(text))
    }

    async fn import_images(&self, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        let (path, owner) = (path.to_owned(), self.owner());
        // Data read from a pipe cannot be read again. An agent keeps running; any other process may end early.
        if let StoreOwner::Other { process, remote } = &owner
            && !repeats(path.clone()).await
        {
            if process.is_agent {
                return remote.import_images(&path, options).await;
            }
            self.take(&owner).await?;
        }
        ask!(self, store => store.import_images(&path, options.clone()))
    }

    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()> {
        let (path, owner) = (path.to_owned(), self.owner());
        // Data written to a pipe cannot be taken back.
        if let StoreOwner::Other { remote, .. } = &owner
            && !repeats(path.clone()).await
        {
            return remote.export_images(images, &path, options).await;
        }
        ask!(self, store => store.export_images(images, &path, options.clone()))
    }
}

/// Returns true if `path` can be read or written again from its beginning.
async fn repeats(path: std::path::PathBuf) -> bool {
    tokio::task::spawn_blocking(move || can_be_repeated(&path)).await.unwrap_or(false)
}
