//! [`Nothing`]: the images of a root in which there is no store yet. Commands that only ask get their answer here, and nothing is
//! made for the question. Brings no image. Called by [`Images`](super::Images).

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use cri_api::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest,
    Result,
};
use engine_api::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage,
    UnfinishedPulls,
};

/// No images.
#[derive(Clone, Debug)]
pub(crate) struct Nothing {
    root: PathBuf,
    directory: PathBuf,
}

impl Nothing {
    /// Under this root, if there is no store. Blocks.
    pub(crate) fn in_place_of(root: &Path) -> Option<Self> {
        // A root that cannot be read is the store's matter to tell of.
        if !store::Store::is_absent(root).unwrap_or(false) {
            return None;
        }
        let directory = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        Some(Self { root: root.to_owned(), directory: directory.to_owned() })
    }

    /// Returns true if the root itself is there.
    pub(crate) fn has_root(&self) -> bool {
        self.directory == self.root
    }

    /// The directory that is there in place of the root: itself, or the nearest one above.
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
