//! The calls of [`ImageService`] on the engine. Each reads the store or joins a pull. The parts of the answers that CRI and the
//! kubelet rely on (image ID, names, absence, kinds of errors) are decided in this module and nowhere below.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest,
    Result,
};
use oci::{ImageConfig, Reference, ReferenceOrId};
use store::{ImageRecord, Store};

use crate::destination::image::chain;
use crate::engine::Engine;
use crate::error::{self, invalid};
use crate::parts::EngineParts;
use crate::pull::PullJob;

/// The repository that a name without tag and digest stands for, as `crictl images REPOSITORY` asks for it.
fn whole_repository(named: &ReferenceOrId) -> Option<String> {
    let reference = named.reference()?;
    (reference.tag().is_none() && reference.digest().is_none()).then(|| reference.repository())
}

#[async_trait]
impl ImageService for Engine {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let wanted = filter.and_then(|f| f.image.as_ref()).filter(|spec| !spec.image.is_empty());
        let mut found = None;
        let mut repository = None;
        if let Some(spec) = wanted {
            let named = spec.reference_or_id();
            found = match self.0.content.find(named.clone()).await {
                Ok(found) => found,
                // The beginning of several IDs matches nothing.
                Err(error) if error.kind() == Kind::InvalidArgument => None,
                Err(error) => return Err(error),
            };
            repository = whole_repository(&named);
            if repository.is_none() {
                return Ok(found.iter().map(to_image).collect());
            }
        }
        let mut images = self.0.content.on_store(Store::images).await?;
        if let Some(repository) = repository {
            let by_id = found.map(|record| record.id);
            images.retain(|image| {
                by_id.as_ref() == Some(&image.id) || image.references().any(|name| name.repository() == repository)
            });
        }
        Ok(images.iter().map(to_image).collect())
    }

    /// An image of which a layer is missing is absent, so that the next pull fetches it again. So is one that the
    /// signature policy refuses by this name, or by ID if the policy accepts none of its names: the next pull by name
    /// searches for its signatures, or reports why not.
    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.0.check_handler(image)?;
        let Some(record) = self.0.policy.find_usable(image.reference_or_id()).await? else {
            return Ok(ImageStatus::default());
        };
        let info = if verbose { verbose_info(&record)? } else { BTreeMap::new() };
        Ok(ImageStatus { image: Some(to_image(&record)), info })
    }

    /// Always asks the registry what the reference stands for, also by digest and also when all of it is here, since the
    /// caller's credential is checked that way (one request; nothing else is fetched then). See
    /// [`EngineOptions::trust_present_digests`](crate::EngineOptions::trust_present_digests).
    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        self.0.in_flight.check_running()?;
        self.0.check_handler(&request.image)?;
        let text = &request.image.image;
        if text.is_empty() {
            return Err(invalid("no image was named"));
        }
        let reference = Reference::parse(text)
            .map_err(|error| invalid(format!("couldn't parse image name {text:?}: {error}")))?
            .canonical();
        let auth = request.auth.filter(|auth| !auth.is_anonymous());
        let before_visible = request.before_visible;
        let job = PullJob { parts: Arc::clone(&self.0), reference, auth, before_visible: before_visible.clone() };
        let key = job.key();
        // A running job does not call this request's work.
        if self.0.in_flight.pulls.has(&key) {
            before_visible.done().await?;
        }
        // The caller that starts the job subscribes before the job runs, so that it gets every event.
        let mut seat = None;
        let mut ticket = self.0.in_flight.pulls.join(&key, |context| {
            seat = Some(context.hub.join(request.progress.clone()));
            job.run(context)
        });
        if !ticket.led {
            before_visible.done().await?;
        }
        let _seat = seat.unwrap_or_else(|| ticket.hub().join(request.progress));
        let id = ticket.wait().await?;
        Ok(id.to_string())
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        let (content, named) = (Arc::clone(&self.0.content), image.reference_or_id());
        let remove = move || {
            let store = &content.store;
            let Some(record) = store.resolve(&named).map_err(|e| error::from_resolve(store.root(), &e))? else {
                return Ok(());
            };
            let removed = store.remove_image(&record.id).map_err(|e| error::from_store(store.root(), &e))?;
            tracing::debug!(image = %record.id, bytes = removed.freed_bytes, "removed");
            content.hints.forget(&record);
            Ok(())
        };
        self.0.content.background.run(remove).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let totals = self.0.content.on_store(Store::totals).await?;
        let usage = FilesystemUsage {
            timestamp: self.0.content.now().max(1),
            mountpoint: text_of(self.0.content.store.root()),
            used_bytes: Some(totals.bytes),
            inodes_used: Some(totals.inodes),
        };
        Ok(FsInfo { image_filesystems: vec![usage], container_filesystems: Vec::new() })
    }
}

impl EngineParts {
    pub(crate) fn check_handler(&self, image: &ImageSpec) -> Result<()> {
        let handler = &image.runtime_handler;
        if handler.is_empty() || self.options.runtime_handlers.contains(handler) {
            return Ok(());
        }
        Err(invalid(format!("unknown runtime handler {handler:?}")))
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(crate) fn to_image(record: &ImageRecord) -> Image {
    // A config that was committed parses; should it not, the user is not known.
    let (uid, username) = ImageConfig::parse(&record.config).map(|c| c.uid_or_username()).unwrap_or_default();
    Image {
        id: record.id.to_string(),
        repo_tags: record.tags.iter().cloned().collect(),
        repo_digests: record.repo_digests.iter().cloned().collect(),
        size: record.size.max(1),
        uid,
        username,
        spec: None,
        pinned: record.pinned,
        pulled_at: Some(record.created_at_unix_nanos),
    }
}

/// `info`: JSON with the chain id of the stack and the image config as it is.
pub(crate) fn verbose_info(record: &ImageRecord) -> Result<BTreeMap<String, String>> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(Kind::DataLoss, format!("the config of image {} cannot be read: {error}", record.id))
    };
    let config = ImageConfig::parse(&record.config).map_err(|e| failed(&e))?;
    let spec: serde_json::Value = oci::json::from_slice(&record.config).map_err(|e| failed(&e))?;
    let chain_id = chain(&config.rootfs.diff_ids).pop().map(|link| link.chain_id.to_string()).unwrap_or_default();
    let info = serde_json::json!({ "chainID": chain_id, "imageSpec": spec });
    Ok(BTreeMap::from([("info".to_owned(), info.to_string())]))
}
