//! The calls of [`Root`]: each is sent to the process that holds the store, and retried with the next owner if that process ended without
//! an answer. No rule of its own.

use std::path::Path;

use async_trait::async_trait;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage,
    PodmanStoreReport, PodmanStoreRequest, UnfinishedPulls,
};
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};

use super::root::{Holder, Root, can_be_repeated};

/// Returns the answer of the process that holds the store.
macro_rules! ask {
    ($root:ident, $store:ident => $call:expr) => {
        loop {
            let holder = $root.holder();
            let answer = match &holder {
                Holder::Own { engine: $store, .. } => $call.await,
                Holder::Other { remote: $store, .. } => $call.await,
            };
            if let Some(answer) = $root.answer_or_retry(&holder, answer).await {
                break answer;
            }
        }
    };
}

#[async_trait]
impl ImageService for Root {
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
impl ImageEngine for Root {
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
            let holder = self.holder();
            let results = match &holder {
                Holder::Own { engine, .. } => engine.remove_images(images).await,
                Holder::Other { remote, .. } => remote.remove_images(images).await,
            };
            let first = results.first().and_then(|result| result.clone().err()).map_or(Ok(()), Err);
            if self.answer_or_retry(&holder, first).await.is_some() {
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
        let (path, holder) = (path.to_owned(), self.holder());
        // Data read from a pipe cannot be read again. An agent keeps running; any other process may end early.
        if let Holder::Other { person, remote } = &holder
            && !repeats(path.clone()).await
        {
            if person.is_agent {
                return remote.import_images(&path, options).await;
            }
            self.take(&holder).await?;
        }
        ask!(self, store => store.import_images(&path, options.clone()))
    }

    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()> {
        let (path, holder) = (path.to_owned(), self.holder());
        // Data written to a pipe cannot be taken back.
        if let Holder::Other { remote, .. } = &holder
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
