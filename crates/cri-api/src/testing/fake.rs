//! [`FakeImageService`]: an image service in memory, with the whole semantics: ids, names, retagging, removal,
//! filters, accounting. It pulls from a registry inside of it; it keeps no bytes.

use base::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use oci::{Digest, Reference, RegistryAuth};
use serde_json::json;

use super::fake_registry::{FakeImage, FakeRegistry};
use super::faults::{CallKind, Faults};
use super::fixtures;
use crate::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullEvent,
    PullImageRequest, Result,
};

/// A received call. Recorded before any fault applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `list_images`, with the name of the filter.
    ListImages(Option<String>),
    /// `image_status`, with the name that was asked for.
    ImageStatus(String),
    /// `pull_image`: the spec, and the user name of the credential (`None`: anonymous).
    PullImage(ImageSpec, Option<String>),
    /// `remove_image`.
    RemoveImage(String),
    /// `image_fs_info`.
    ImageFsInfo,
}

impl Call {
    /// Which call it is.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Self::ListImages(_) => CallKind::ListImages,
            Self::ImageStatus(_) => CallKind::ImageStatus,
            Self::PullImage(..) => CallKind::PullImage,
            Self::RemoveImage(_) => CallKind::RemoveImage,
            Self::ImageFsInfo => CallKind::ImageFsInfo,
        }
    }
}

/// An image service in memory. Clones are the same service.
#[derive(Clone, Debug, Default)]
pub struct FakeImageService(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    faults: Faults,
    /// Guards what is on offer.
    registry: Mutex<FakeRegistry>,
    /// Guards what is present.
    store: Mutex<Store>,
    /// Guards the log of calls.
    calls: Mutex<Vec<Call>>,
    /// Guards the count of pulls whose caller disconnected.
    abandoned: Mutex<usize>,
    /// Guards the runtime handlers that are known in addition to the default one; `None`: no handler is refused.
    handlers: Mutex<Option<BTreeSet<String>>>,
}

impl FakeImageService {
    /// Creates a fake with an empty store and an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers an image under a name. A tag that was there moves; the older image stays on offer by its digest.
    ///
    /// # Panics
    /// If the name is none.
    pub fn publish(&self, name: &str, image: &FakeImage) {
        self.0.registry.lock().publish(&parse(name), image);
    }

    /// Offers every fixture of the conformance suite below `domain`.
    pub fn publish_fixtures(&self, domain: &str) {
        for fixture in fixtures::IMAGES {
            let image = FakeImage::of_fixture(fixture);
            for (repository, tag) in fixture.names {
                self.publish(&format!("{domain}/{repository}:{tag}"), &image);
            }
        }
    }

    /// Takes the whole repository of a name off the registry.
    ///
    /// # Panics
    /// If the name is none.
    pub fn withdraw(&self, name: &str) {
        self.0.registry.lock().withdraw(&parse(name));
    }

    /// Serves the repository of this name only for this credential from now on.
    ///
    /// # Panics
    /// If the name is none.
    pub fn require_auth(&self, name: &str, auth: RegistryAuth) {
        self.0.registry.lock().require(&parse(name), auth);
    }

    /// Publishes an image and makes it present as if it had been pulled. Answers its id; no call is written down.
    ///
    /// # Panics
    /// If the name is none.
    pub fn preload(&self, name: &str, image: &FakeImage) -> String {
        self.publish(name, image);
        let digest = image.digest();
        self.0.store.lock().commit(&parse(name).canonical(), image, &digest, &ImageSpec::new(name))
    }

    /// Pins a present image, or takes the pin away.
    pub fn pin(&self, id: &str, pinned: bool) {
        let mut store = self.0.store.lock();
        if let Some(present) = id.parse().ok().and_then(|id: Digest| store.images.get_mut(&id)) {
            present.pinned = pinned;
        }
    }

    /// Refuses pulls for other handlers than these and the default one from now on.
    pub fn know_only_handlers(&self, handlers: &[&str]) {
        *self.0.handlers.lock() = Some(handlers.iter().map(|&h| h.to_owned()).collect());
    }

    /// Faults of its calls.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.lock().clone()
    }

    /// Returns the kinds of all calls.
    #[must_use]
    pub fn call_kinds(&self) -> Vec<CallKind> {
        self.0.calls.lock().iter().map(Call::kind).collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.0.calls.lock().clear();
    }

    /// Returns the number of pulls that callers dropped before their end.
    #[must_use]
    pub fn abandoned_pulls(&self) -> usize {
        *self.0.abandoned.lock()
    }

    /// Returns the image that a name resolves to, without a call.
    pub(super) fn find(&self, name: &str) -> Option<Image> {
        let store = self.0.store.lock();
        store.view(&store.resolve(name).ok()??)
    }

    async fn enter(&self, call: Call) -> Result<()> {
        let kind = call.kind();
        self.0.calls.lock().push(call);
        self.0.faults.pass(kind).await
    }
}

fn parse(name: &str) -> Reference {
    Reference::parse(name).expect("the test gives a valid name").with_default_tag()
}

/// Images that are present.
#[derive(Debug, Default)]
struct Store {
    images: BTreeMap<Digest, Present>,
    /// `name:tag` to image id.
    tags: BTreeMap<String, Digest>,
    /// `name@digest` to image id.
    digests: BTreeMap<String, Digest>,
    clock: i64,
}

#[derive(Debug)]
struct Present {
    image: FakeImage,
    spec: ImageSpec,
    pinned: bool,
}

impl Store {
    /// Makes an image visible under the canonical `name`, which resolved to `digest`. Answers its id.
    fn commit(&mut self, name: &Reference, image: &FakeImage, digest: &Digest, spec: &ImageSpec) -> String {
        let id = image.id();
        if name.tag().is_some() {
            self.tags.insert(name.to_string(), id.clone());
        }
        self.digests.insert(name.at_digest(digest.clone()).to_string(), id.clone());
        let present = Present { image: image.clone(), spec: spec.clone(), pinned: false };
        self.images.entry(id.clone()).and_modify(|p| p.spec = spec.clone()).or_insert(present);
        id.to_string()
    }

    /// Which image a text means: its id, a recorded name in any spelling, or the beginning of its id.
    fn resolve(&self, text: &str) -> Result<Option<Digest>> {
        if text.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "no image specified"));
        }
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if let Ok(id) = format!("sha256:{hex}").parse::<Digest>() {
            return Ok(self.images.contains_key(&id).then_some(id));
        }
        if let Ok(name) = Reference::parse(text) {
            let name = name.canonical();
            let names = if name.digest().is_some() { &self.digests } else { &self.tags };
            if let Some(id) = names.get(&name.to_string()) {
                return Ok(Some(id.clone()));
            }
        }
        if hex.len() < 3 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(None);
        }
        let mut ids = self.images.keys().filter(|id| id.hex().starts_with(hex));
        match (ids.next(), ids.next()) {
            (Some(_), Some(_)) => {
                Err(Error::new(Kind::InvalidArgument, format!("image id {hex} is ambiguous: more digits are needed")))
            }
            (first, _) => Ok(first.cloned()),
        }
    }

    /// Returns the images of a repository without tag and digest.
    fn of_repository(&self, text: &str) -> Vec<Digest> {
        let reference = Reference::parse(text).ok().filter(|r| r.tag().is_none() && r.digest().is_none());
        let Some(repository) = reference.map(|reference| reference.repository()) else { return Vec::new() };
        let is_of = |name: &str| Reference::parse(name).is_ok_and(|reference| reference.repository() == repository);
        let names = self.tags.iter().chain(&self.digests);
        names.filter(|(name, _)| is_of(name)).map(|(_, id)| id.clone()).collect()
    }

    fn view(&self, id: &Digest) -> Option<Image> {
        let present = self.images.get(id)?;
        let names = |map: &BTreeMap<String, Digest>| {
            map.iter().filter(|(_, of)| *of == id).map(|(name, _)| name.clone()).collect()
        };
        let (uid, username) = present.image.uid_and_username();
        Some(Image {
            id: id.to_string(),
            repo_tags: names(&self.tags),
            repo_digests: names(&self.digests),
            size: present.image.metadata_size() + present.image.layers().iter().map(|l| l.size).sum::<u64>(),
            uid,
            username,
            spec: Some(present.spec.clone()),
            pinned: present.pinned,
            pulled_at: None,
        })
    }

    fn remove(&mut self, id: &Digest) {
        self.images.remove(id);
        self.tags.retain(|_, of| of != id);
        self.digests.retain(|_, of| of != id);
    }

    /// Layers by diff id: size, and how many images have it.
    fn layers(&self) -> BTreeMap<&Digest, (u64, usize)> {
        let mut layers = BTreeMap::new();
        for present in self.images.values() {
            // An image that has a layer twice counts once.
            let own: BTreeMap<&Digest, u64> = present.image.layers().iter().map(|l| (&l.diff_id, l.size)).collect();
            for (diff_id, size) in own {
                layers.entry(diff_id).or_insert((size, 0)).1 += 1;
            }
        }
        layers
    }
}

#[async_trait]
impl ImageService for FakeImageService {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let wanted = filter.and_then(|f| f.image.as_ref()).map(|spec| spec.image.clone()).filter(|i| !i.is_empty());
        self.enter(Call::ListImages(wanted.clone())).await?;
        let store = self.0.store.lock();
        let ids: Vec<Digest> = match wanted {
            Some(wanted) => {
                let mut ids: BTreeSet<Digest> = store.resolve(&wanted)?.into_iter().collect();
                ids.extend(store.of_repository(&wanted));
                ids.into_iter().collect()
            }
            None => store.images.keys().cloned().collect(),
        };
        Ok(ids.iter().filter_map(|id| store.view(id)).collect())
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.enter(Call::ImageStatus(image.image.clone())).await?;
        let store = self.0.store.lock();
        let Some(id) = store.resolve(&image.image)? else { return Ok(ImageStatus::default()) };
        let mut info = BTreeMap::new();
        if let Some(present) = store.images.get(&id).filter(|_| verbose) {
            let config: serde_json::Value =
                serde_json::from_str(&present.image.config()).expect("the fake writes valid JSON");
            let text = json!({ "chainID": present.image.chain_id(), "imageSpec": config }).to_string();
            info.insert("info".to_owned(), text);
        }
        Ok(ImageStatus { image: store.view(&id), info })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        struct Guard<'a>(&'a Shared, bool);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    *self.0.abandoned.lock() += 1;
                }
            }
        }
        let mut guard = Guard(&self.0, false);
        let user = request.auth.as_ref().filter(|a| !a.is_anonymous()).map(|a| a.username.clone());
        let entered = self.enter(Call::PullImage(request.image.clone(), user)).await;
        guard.1 = true;
        entered?;

        let text = &request.image.image;
        let name = Reference::parse(text)
            .map_err(|e| Error::new(Kind::InvalidArgument, format!("parse image name {text:?}: {e}")))?
            .canonical();
        let handler = &request.image.runtime_handler;
        if let Some(known) = &*self.0.handlers.lock()
            && !handler.is_empty()
            && !known.contains(handler)
        {
            return Err(Error::new(Kind::InvalidArgument, format!("pull {name}: unknown runtime handler {handler:?}")));
        }
        let (image, digest) = self.0.registry.lock().resolve(&name, request.auth.as_ref())?;
        let layers = image.layers().iter().map(|l| (l.diff_id.clone(), l.size)).collect();
        request.progress.report(PullEvent::Resolved { digest: digest.clone(), layers });
        request.progress.report(PullEvent::Committing);
        request.before_visible.done().await?;
        Ok(self.0.store.lock().commit(&name, &image, &digest, &request.image))
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.enter(Call::RemoveImage(image.image.clone())).await?;
        let mut store = self.0.store.lock();
        if let Some(id) = store.resolve(&image.image)? {
            store.remove(&id);
        }
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.enter(Call::ImageFsInfo).await?;
        let mut store = self.0.store.lock();
        store.clock += 1;
        let metadata: u64 = store.images.values().map(|present| present.image.metadata_size()).sum();
        let layers = store.layers();
        let used = metadata + layers.values().map(|(size, _)| size).sum::<u64>();
        let usage = FilesystemUsage {
            timestamp: store.clock,
            mountpoint: "/fake/images".into(),
            used_bytes: Some(used),
            inodes_used: Some((layers.len() + store.images.len()) as u64),
        };
        Ok(FsInfo { image_filesystems: vec![usage], container_filesystems: Vec::new() })
    }
}
