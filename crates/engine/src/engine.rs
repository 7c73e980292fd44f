//! [`Engine`]: images of one store, and [`EngineBuilder`]: the settings that differ between programs. Each call converts to and from a call
//! of the image service; none has rules of its own.

use std::path::PathBuf;

use cri_api::engine::ImageEngine as _;
use cri_api::{ImageService as _, ImageSpec};
use image_service::EngineOptions;
use oci::{Platform, ReferenceOrId};
use registry::ProxySettings;

use crate::error::{Error, ErrorKind, Result};
use crate::image::{Image, ImageDetails};
use crate::pull::{PullRequest, Pulled};
use crate::rootfs::RootFs;

/// Pulls images into a store, and returns what it contains. Clones share the store.
#[derive(Clone, Debug)]
pub struct Engine {
    service: image_service::Engine,
}

impl Engine {
    pub(crate) fn new(service: image_service::Engine) -> Self {
        Self { service }
    }

    /// Opens the store under `root` with the default settings; a directory that does not exist or is empty becomes a store.
    ///
    /// # Errors
    /// See [`EngineBuilder::open`].
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(root).open().await
    }

    /// Returns the settings of an engine on the store under `root`.
    pub fn builder(root: impl Into<PathBuf>) -> EngineBuilder {
        EngineBuilder::new(root.into())
    }

    /// Pulls an image. The registry is always asked which image the reference stands for; only layers that the store does not have are
    /// fetched. Concurrent pulls share the work for the same image and for the same layers.
    ///
    /// Dropping the future cancels the pull, unless another caller waits for the same one. The store then has nothing of the image that
    /// a caller could see.
    ///
    /// # Errors
    /// See [`ErrorKind`]; for a pull all of them but `InUse`.
    pub async fn pull(&self, request: impl Into<PullRequest>) -> Result<Pulled> {
        let request = request.into();
        let (reference, tally) = (request.reference.clone().canonical(), request.tally());
        let id = self.service.pull_image(request.into_call(&tally)).await.map_err(|error| Error::of_call(&error))?;
        let Some(image) = self.find(&reference.clone().into()).await? else {
            return Err(Error::new(ErrorKind::NotFound, format!("image {reference} was removed while it was pulled")));
        };
        tally.into_pulled(reference, &id, image.size)
    }

    /// Returns all images of the store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list_images(&self) -> Result<Vec<Image>> {
        let images = self.service.list_images(None).await.map_err(|error| Error::of_call(&error))?;
        images.into_iter().map(Image::of_service).collect()
    }

    /// Returns an image with its config, by reference, image ID or the first digits of the ID. Returns `None` if the store does not have
    /// it, if a layer of it is damaged, or if the signature policy does not accept it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if several IDs have these first digits; the store cannot be read.
    pub async fn inspect_image(&self, image: impl Into<ReferenceOrId>) -> Result<Option<ImageDetails>> {
        let Some(image) = self.find(&image.into()).await? else { return Ok(None) };
        let documents = self.service.image_documents(&ImageSpec::new(image.id.to_string())).await;
        match documents.map_err(|error| Error::of_call(&error))? {
            Some(documents) => ImageDetails::new(image, &documents).map(Some),
            // Removed since.
            None => Ok(None),
        }
    }

    /// Removes an image with all its references, and the layers that no other image uses. An image that the store does not have is not an
    /// error. The disk space is free when the call returns.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if the image is mounted; the store cannot be changed.
    pub async fn remove_image(&self, image: impl Into<ReferenceOrId>) -> Result<()> {
        let named = ImageSpec::new(image.into().as_str());
        self.service.remove_image(&named).await.map_err(|error| Error::of_call(&error))
    }

    /// Opens the root file system of an image for reading. Its layers stay in the store until the value is dropped, even if the image is
    /// removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] as [`Engine::inspect_image`] returns `None`; a layer cannot be opened.
    pub async fn rootfs(&self, image: impl Into<ReferenceOrId>) -> Result<RootFs> {
        let named = image.into();
        let absent = || Error::new(ErrorKind::NotFound, format!("image {:?} is not present", named.as_str()));
        let image = self.find(&named).await?.ok_or_else(absent)?;
        let lease = self.service.lease_layers(&image.id.to_string()).await;
        RootFs::open(image.id, lease.map_err(|error| Error::of_call(&error))?).await
    }

    /// Cancels all pulls, and waits until every task and thread of the engine has ended. Later pulls fail; reading still works. The store
    /// can be opened by another process when all clones of the engine and all values of [`Engine::rootfs`] are dropped.
    pub async fn shutdown(&self) {
        self.service.shutdown().await;
    }

    async fn find(&self, image: &ReferenceOrId) -> Result<Option<Image>> {
        let status = self.service.image_status(&ImageSpec::new(image.as_str()), false).await;
        status.map_err(|error| Error::of_call(&error))?.image.map(Image::of_service).transpose()
    }
}

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct EngineBuilder(EngineOptions);

impl EngineBuilder {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self(EngineOptions { root, ..EngineOptions::default() })
    }

    /// Sets the platform for which images are selected from an index. The default is that of this machine.
    pub fn platform(mut self, platform: Platform) -> Self {
        self.0.platform = platform;
        self
    }

    /// Sets the directories of `hosts.toml` files, which configure mirrors, certificate authorities and plain HTTP as for containerd; the
    /// first directory that has the registry is used. The default is `/etc/containerd/certs.d` and `/etc/docker/certs.d`. Registries on
    /// loopback are requested over plain HTTP without a file.
    pub fn registry_config_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.0.hosts_roots = paths.into_iter().collect();
        self
    }

    /// Sets the proxies towards registries. By default there are none: the environment is not read. A program that wants its variables
    /// passes [`ProxySettings::from_lookup`].
    pub fn proxy(mut self, proxy: ProxySettings) -> Self {
        self.0.proxy = proxy;
        self
    }

    /// Sets a signature policy in the format of `containers-policy.json(5)`. Images that it does not accept are neither pulled nor
    /// returned. By default every image is accepted.
    pub fn signature_policy(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.signature_policy = Some(path.into());
        self
    }

    /// Opens the store, which is created if it does not exist, and returns the engine. No registry is requested.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) if another process owns the store; `InvalidArgument` if the root is another kind of
    /// directory or the policy cannot be used; `PermissionDenied`, `DiskFull` or `Internal` as the disk reports.
    pub async fn open(self) -> Result<Engine> {
        let root = self.0.root.clone();
        match image_service::Engine::open(self.0).await {
            Ok(service) => Ok(Engine::new(service)),
            Err(error) => Err(Error::of_open(&root, &error)),
        }
    }
}
