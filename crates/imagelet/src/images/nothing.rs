//! [`Nothing`]: the images of a root in which no store exists yet. Read-only commands get their answer from it, so that a query creates
//! nothing. Pulls no image. Called by [`Images`](super::Images).

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage,
    UnfinishedPulls,
};
use cri_api::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest,
    Result,
};

/// An image service without images.
#[derive(Clone, Debug)]
pub(crate) struct Nothing {
    root: PathBuf,
    directory: PathBuf,
}

impl Nothing {
    /// Returns the empty image service of this root, if no store exists. Blocks.
    pub(crate) fn in_place_of(root: &Path) -> Option<Self> {
        // If the root cannot be read, opening the store reports the error.
        if !store::Store::is_absent(root).unwrap_or(false) {
            return None;
        }
        let directory = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        Some(Self { root: root.to_owned(), directory: directory.to_owned() })
    }

    /// Returns true if the root itself exists.
    pub(crate) fn has_root(&self) -> bool {
        self.directory == self.root
    }

    /// Returns the directory that exists in place of the root: the root itself, or its nearest existing ancestor.
    pub(crate) fn into_directory(self) -> PathBuf {
        self.directory
    }

    fn absent<T>(image: &str) -> Result<T> {
        Err(Error::new(Kind::NotFound, format!("no such image: {image}")))
    }

    fn refused<T>(&self) -> Result<T> {
        Err(Error::new(Kind::FailedPrecondition, format!("there is no store in {}", self.root.display())))
    }
}

#[async_trait]
impl ImageService for Nothing {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus> {
        Ok(ImageStatus::default())
    }

    async fn pull_image(&self, _: PullImageRequest) -> Result<String> {
        self.refused()
    }

    async fn remove_image(&self, _: &ImageSpec) -> Result<()> {
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let mountpoint = self.directory.display().to_string();
        let none = Some(0);
        let usage = FilesystemUsage { mountpoint, used_bytes: none, inodes_used: none, ..FilesystemUsage::default() };
        Ok(FsInfo { image_filesystems: vec![usage], container_filesystems: Vec::new() })
    }
}

#[async_trait]
impl ImageEngine for Nothing {
    async fn inspect_image(&self, _: &ImageSpec) -> Result<ImageStatus> {
        Ok(ImageStatus::default())
    }

    async fn image_usage(&self, _: &ImageSpec) -> Result<Option<ImageUsage>> {
        Ok(None)
    }

    async fn image_layers(&self) -> Result<ImageLayers> {
        Ok(ImageLayers::default())
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        images.iter().map(|_| Ok(())).collect()
    }

    async fn pin_image(&self, image: &ImageSpec, _: bool) -> Result<()> {
        Self::absent(&image.image)
    }

    async fn tag_image(&self, image: &ImageSpec, _: &str) -> Result<String> {
        Self::absent(&image.image)
    }

    async fn untag_image(&self, image: &ImageSpec, _: &[String]) -> Result<Vec<String>> {
        Self::absent(&image.image)
    }

    async fn image_documents(&self, _: &ImageSpec) -> Result<Option<ImageDocuments>> {
        Ok(None)
    }

    async fn check_images(&self, _: &CheckRequest, _: &CheckSink) -> Result<CheckReport> {
        Ok(CheckReport::default())
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport> {
        match request.images.first() {
            Some(image) => Self::absent(image),
            None => Ok(ConvertReport::default()),
        }
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        Ok(UnfinishedPulls::default())
    }

    async fn drop_unfinished_pulls(&self, _: bool) -> Result<u64> {
        Ok(0)
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage> {
        Self::absent(&request.image.image)
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        Ok(Vec::new())
    }

    async fn lease_layers(&self, text: &str) -> Result<LayerLease> {
        Self::absent(text)
    }

    async fn import_images(&self, _: &Path, _: ImportOptions) -> Result<ImportReport> {
        self.refused()
    }

    async fn export_images(&self, images: &[String], _: &Path, _: ExportOptions) -> Result<()> {
        match images.first() {
            Some(image) => Self::absent(image),
            None => self.refused(),
        }
    }
}
