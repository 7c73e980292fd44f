//! [`CrioImages`]: the images of a CRI-O. Our engine pulls into the store of this process, which CRI-O reads as an additional image store
//! (the view for podman, `<root>/podman`); the images that only CRI-O has are answered by CRI-O. Identifiers are whole image IDs with
//! `sha256:`; [`CrioIds`](crate::CrioIds) converts them for clients. Called by the binary, for `serve` in front of CRI-O.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::lock::Mutex;
use cri_api::engine::runtime_store::{DamagedLayer, RuntimeImageFacts};
use cri_api::engine::{
    ConvertReport, ConvertRequest, ImageEngine, ImageLayers, LayerShape, PodmanStoreReport, PodmanStoreRequest,
};
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};
use tokio::time::Instant;

use crate::crio_ids::{bare_id, whole_id};

/// How long the images that CRI-O can use are believed to be the same. A change by this process is known at once.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// End of the path of the images in a store of containers/storage.
const IMAGES: &str = "overlay-images";

/// The images of a CRI-O and those of our store.
pub struct CrioImages {
    own: Arc<dyn ImageService>,
    engine: Arc<dyn ImageEngine>,
    runtime: Arc<dyn ImageService>,
    /// A signature policy is set, which CRI-O does not know.
    has_policy: bool,
    /// Guards the images of our store as CRI-O sees them.
    view: Mutex<ViewState>,
}

#[derive(Default)]
struct ViewState {
    read_at: Option<Instant>,
    directory: PathBuf,
    /// Images that CRI-O cannot use, by ID, with the reasons.
    hidden: BTreeMap<String, String>,
}

impl std::fmt::Debug for CrioImages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrioImages").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

impl CrioImages {
    /// Creates the view of the store that CRI-O reads, or updates it. `own` and `engine` are the same store; `runtime` is CRI-O.
    ///
    /// # Errors
    /// The view cannot be made, or CRI-O does not answer.
    pub async fn open(
        own: Arc<dyn ImageService>,
        engine: Arc<dyn ImageEngine>,
        runtime: Arc<dyn ImageService>,
        has_policy: bool,
    ) -> Result<Self> {
        let graph_roots = graph_roots(&runtime.image_fs_info().await?);
        let images = Self { own, engine, runtime, has_policy, view: Mutex::default() };
        images.update_view(PodmanStoreRequest { remove: false, graph_roots }).await?;
        Ok(images)
    }

    /// Directory of the view.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.view.lock().directory.clone()
    }

    /// The line of storage.conf by which CRI-O reads the view.
    #[must_use]
    pub fn storage_line(&self) -> String {
        format!("additionalimagestores = [\"{}\"]", self.directory().display())
    }

    /// Brings the view up to date, and mounts what is not mounted. To be called now and then.
    pub async fn tend(&self) {
        if let Err(error) = self.update_view(PodmanStoreRequest::default()).await {
            tracing::warn!(%error, "CRI-O may not see the images as they are");
        }
    }

    async fn update_view(&self, request: PodmanStoreRequest) -> Result<()> {
        let PodmanStoreReport { directory, images: _, hidden } = self.engine.podman_store(&request).await?;
        let hidden = hidden.into_iter().map(|image| (image.id, image.why)).collect();
        let directory = directory.unwrap_or_default();
        *self.view.lock() = ViewState { read_at: Some(Instant::now()), directory, hidden };
        Ok(())
    }

    /// Returns why CRI-O cannot use an image of our store, or `None` if it can.
    async fn why_hidden(&self, id: &str) -> Result<Option<String>> {
        let is_believed = self.view.lock().read_at.is_some_and(|read_at| read_at.elapsed() < BELIEVED_FOR);
        if !is_believed {
            self.update_view(PodmanStoreRequest::default()).await?;
        }
        Ok(self.view.lock().hidden.get(id).cloned())
    }

    /// Makes sure that CRI-O finds an image that was pulled.
    async fn show(&self, id: &str) -> Result<()> {
        self.update_view(PodmanStoreRequest::default()).await?;
        if self.why_hidden(id).await?.is_some() {
            // The layers may be EROFS files that were unpacked before CRI-O was to read them.
            let request = ConvertRequest { to: LayerShape::Dir, images: vec![id.to_owned()] };
            self.engine.convert_images(&request).await?;
            self.update_view(PodmanStoreRequest::default()).await?;
        }
        if let Some(why) = self.why_hidden(id).await? {
            return Err(Error::new(Kind::FailedPrecondition, format!("CRI-O cannot use image {id}: {why}")));
        }
        if self.runtime.image_status(&ImageSpec::new(bare_id(id)), false).await?.image.is_none() {
            let message = format!(
                "image {id} was pulled, and CRI-O does not find it: write {} below [storage.options] in \
                 /etc/containers/storage.conf, and restart CRI-O",
                self.storage_line()
            );
            return Err(Error::new(Kind::FailedPrecondition, message));
        }
        Ok(())
    }

    /// Returns true if our store has the image of this ID, even one that must not be used.
    async fn is_own(&self, id: &str) -> Result<bool> {
        Ok(self.engine.inspect_image(&ImageSpec::new(id)).await?.image.is_some())
    }
}

/// Where CRI-O keeps containers, by its answer to ImageFsInfo.
fn graph_roots(info: &FsInfo) -> Vec<PathBuf> {
    let images = info.image_filesystems.iter().map(|images| PathBuf::from(&images.mountpoint));
    let roots = images.filter(|images| images.is_absolute() && images.ends_with(IMAGES));
    roots.filter_map(|images| images.parent().map(std::path::Path::to_owned)).collect()
}

/// The image for our store, which has one form of every image for all runtime handlers.
fn for_store(image: &ImageSpec) -> ImageSpec {
    ImageSpec { runtime_handler: String::new(), ..image.clone() }
}

/// The image as CRI-O takes it: it has no IDs with an algorithm.
fn for_crio(image: &ImageSpec) -> ImageSpec {
    ImageSpec { image: bare_id(&image.image).to_owned(), ..image.clone() }
}

fn filter_with(filter: Option<&ImageFilter>, convert: fn(&ImageSpec) -> ImageSpec) -> Option<ImageFilter> {
    filter.map(|filter| ImageFilter { image: filter.image.as_ref().map(convert) })
}

#[async_trait]
impl ImageService for CrioImages {
    /// CRI-O lists the images of our store as well, through the view. Images that it pins (of sandboxes, and `pinned_images`) are pinned.
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let mut images = self.own.list_images(filter_with(filter, for_store).as_ref()).await?;
        let others = self.runtime.list_images(filter_with(filter, for_crio).as_ref()).await?;
        let mut others: BTreeMap<String, Image> =
            others.into_iter().map(|image| (whole_id(&image.id), image)).collect();
        for image in &mut images {
            image.pinned |= others.remove(&image.id).is_some_and(|other| other.pinned);
        }
        images.extend(others.into_iter().map(|(id, image)| Image { id, ..image }));
        Ok(images)
    }

    /// An image of our store that CRI-O cannot use is absent, so that the next pull repairs it. An image that only CRI-O has is absent if
    /// there is a signature policy: the next pull verifies it.
    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let own = self.own.image_status(&for_store(image), verbose).await?;
        if let Some(present) = &own.image {
            if let Some(why) = self.why_hidden(&present.id).await? {
                tracing::warn!(image = image.image, reason = why, "CRI-O cannot use the image: it counts as absent");
                return Ok(ImageStatus::default());
            }
            return Ok(own);
        }
        let mut status = self.runtime.image_status(&for_crio(image), verbose).await?;
        if let Some(present) = &mut status.image {
            present.id = whole_id(&present.id);
            // Through the view CRI-O also has the images that our store refuses to use.
            if self.has_policy || self.is_own(&present.id).await? {
                tracing::debug!(image = image.image, "an image that CRI-O has counts as absent");
                return Ok(ImageStatus::default());
            }
        }
        Ok(status)
    }

    async fn pull_image(&self, mut request: PullImageRequest) -> Result<String> {
        request.image = for_store(&request.image);
        let id = self.own.pull_image(request).await?;
        self.show(&id).await?;
        Ok(id)
    }

    /// Removes the image from both stores. Ours is the first: it refuses if a container uses the image, and CRI-O's own removal finds no
    /// image of ours then.
    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.own.remove_image(&for_store(image)).await?;
        match self.runtime.remove_image(&for_crio(image)).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Images are pulled into our store; containers are CRI-O's.
    async fn image_fs_info(&self) -> Result<FsInfo> {
        let own = self.own.image_fs_info().await?;
        let runtime = self.runtime.image_fs_info().await?;
        Ok(FsInfo { container_filesystems: runtime.container_filesystems, ..own })
    }
}

#[async_trait]
impl RuntimeImageFacts for CrioImages {
    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        self.engine.image_layers().await.map(Some)
    }

    /// The list of images has the times of ours.
    async fn pull_times(&self) -> Result<BTreeMap<String, i64>> {
        Ok(BTreeMap::new())
    }

    async fn pull_engine(&self) -> String {
        format!("embedded: it fills the store of imagelet, which CRI-O reads ({} in storage.conf)", self.storage_line())
    }

    /// Drops the leftovers of interrupted pulls that were kept long enough. CRI-O has no hidden records.
    async fn hidden_records(&self, remove: bool) -> Result<Option<Vec<String>>> {
        if remove {
            self.engine.drop_unfinished_pulls(false).await?;
        }
        Ok(None)
    }

    /// The check of our store has them.
    async fn damaged_layers(&self, _: bool) -> Result<Option<Vec<DamagedLayer>>> {
        Ok(None)
    }

    async fn convert_layers(&self, _: &ConvertRequest) -> Result<Option<ConvertReport>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use cri_api::FilesystemUsage;

    use super::*;

    #[test]
    fn graph_root_is_the_parent_of_the_images() {
        let of = |paths: &[&str]| {
            let usage = |path: &&str| FilesystemUsage { mountpoint: (*path).to_owned(), ..FilesystemUsage::default() };
            graph_roots(&FsInfo { image_filesystems: paths.iter().map(usage).collect(), ..FsInfo::default() })
        };
        assert_eq!(of(&["/data/storage/overlay-images"]), [PathBuf::from("/data/storage")]);
        assert_eq!(of(&["/data/storage", "overlay-images"]), Vec::<PathBuf>::new());
    }
}
