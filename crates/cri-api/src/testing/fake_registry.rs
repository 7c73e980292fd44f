//! [`FakeImage`]: an image made of texts, and the registry inside of the fake that serves such images by tag and
//! digest. No bytes of layers exist, only their digests and sizes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use oci::{Digest, Reference, RegistryAuth, chain_id};
use serde_json::json;

use super::fixtures::{self, FixtureImage};
use crate::{Error, Kind, Result};

/// An image as a registry offers it. Its digests follow from its parts: equal parts, equal image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeImage {
    layers: Vec<FakeLayer>,
    user: String,
    nonce: Option<u32>,
    index: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FakeLayer {
    pub(super) diff_id: Digest,
    pub(super) size: u64,
}

impl FakeImage {
    /// Creates an image of one layer that holds `content`.
    #[must_use]
    pub fn new(content: &str) -> Self {
        Self { layers: Vec::new(), user: String::new(), nonce: None, index: false }.layer(content)
    }

    /// Adds a layer on top.
    #[must_use]
    pub fn layer(mut self, content: &str) -> Self {
        self.layers.push(FakeLayer { diff_id: Digest::sha256(content.as_bytes()), size: content.len().max(1) as u64 });
        self
    }

    /// Sets the size of the top layer in bytes.
    #[must_use]
    pub fn sized(mut self, bytes: u64) -> Self {
        if let Some(layer) = self.layers.last_mut() {
            layer.size = bytes;
        }
        self
    }

    /// Sets `USER`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Offered as an image index with this image in it.
    #[must_use]
    pub fn indexed(mut self) -> Self {
        self.index = true;
        self
    }

    /// Changed in a label until the image id begins with these hex digits. Each digit costs sixteen times the work.
    #[must_use]
    pub fn with_id_prefix(mut self, prefix: &str) -> Self {
        if self.id().hex().starts_with(prefix) {
            return self;
        }
        // Only the digits of the label differ from one attempt to the next.
        self.nonce = Some(0);
        let config = self.config();
        let label = nonce_text(0);
        let (before, after) = config.split_once(&label).expect("the label is in the config");
        let fits = |nonce: &u32| {
            Digest::sha256(format!("{before}{}{after}", nonce_text(*nonce)).as_bytes()).hex().starts_with(prefix)
        };
        self.nonce = (0..u32::MAX).find(fits);
        self
    }

    /// Creates the image of a fixture of the conformance suite.
    ///
    /// # Panics
    /// If the fixture is none of the suite's.
    #[must_use]
    pub fn of_fixture(fixture: &FixtureImage) -> Self {
        static ALL: LazyLock<Vec<(&'static str, FakeImage)>> = LazyLock::new(|| {
            let build = |fixture: &&'static FixtureImage| {
                let mut image = FakeImage::new(fixtures::BASE_CONTENT).layer(fixture.content).user(fixture.user);
                image.index = fixture.index;
                (fixture.content, image.with_id_prefix(fixture.id_prefix))
            };
            fixtures::IMAGES.iter().map(build).collect()
        });
        let found = ALL.iter().find(|(content, _)| *content == fixture.content);
        found.map(|(_, image)| image.clone()).expect("the fixture is one of the suite's")
    }

    /// Returns the image ID: the digest of the config.
    #[must_use]
    pub fn id(&self) -> Digest {
        Digest::sha256(self.config().as_bytes())
    }

    /// Digest that its tags resolve to: that of the index where it is offered as one, else of the manifest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        if self.index {
            return Digest::sha256(format!("index of {}", self.manifest_digest()).as_bytes());
        }
        self.manifest_digest()
    }

    /// Digest of the manifest.
    #[must_use]
    pub fn manifest_digest(&self) -> Digest {
        Digest::sha256(self.manifest().as_bytes())
    }

    pub(super) fn config(&self) -> String {
        let mut config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": self.layers.iter().map(|l| &l.diff_id).collect::<Vec<_>>() },
        });
        if !self.user.is_empty() {
            config["config"]["User"] = json!(self.user);
        }
        if let Some(nonce) = self.nonce {
            config["config"]["Labels"] = json!({ fixtures::NONCE_LABEL: nonce_text(nonce) });
        }
        config.to_string()
    }

    fn manifest(&self) -> String {
        let layers: Vec<_> = self.layers.iter().map(|l| json!({ "digest": l.diff_id, "size": l.size })).collect();
        json!({ "schemaVersion": 2, "config": { "digest": self.id() }, "layers": layers }).to_string()
    }

    pub(super) fn layers(&self) -> &[FakeLayer] {
        &self.layers
    }

    pub(super) fn metadata_size(&self) -> u64 {
        (self.config().len() + self.manifest().len()) as u64
    }

    pub(super) fn chain_id(&self) -> Option<Digest> {
        self.layers.iter().fold(None, |parent, layer| Some(chain_id(parent.as_ref(), &layer.diff_id)))
    }

    /// Returns the user id and the user name as CRI reports them.
    pub(super) fn uid_and_username(&self) -> (Option<i64>, String) {
        let user = self.user.split(':').next().unwrap_or_default();
        match user.parse() {
            Ok(uid) => (Some(uid), String::new()),
            Err(_) => (None, user.to_owned()),
        }
    }
}

fn nonce_text(nonce: u32) -> String {
    format!("nonce-{nonce:010}")
}

/// Repositories by their full name.
#[derive(Debug, Default)]
pub(super) struct FakeRegistry {
    repositories: BTreeMap<String, Repository>,
}

#[derive(Debug, Default)]
struct Repository {
    tags: BTreeMap<String, Digest>,
    manifests: BTreeMap<Digest, FakeImage>,
    wanted: Option<RegistryAuth>,
}

impl FakeRegistry {
    pub(super) fn publish(&mut self, name: &Reference, image: &FakeImage) {
        let repository = self.repositories.entry(name.repository()).or_default();
        repository.manifests.insert(image.digest(), image.clone());
        repository.manifests.insert(image.manifest_digest(), image.clone());
        if let Some(tag) = name.tag() {
            repository.tags.insert(tag.to_owned(), image.digest());
        }
    }

    pub(super) fn withdraw(&mut self, name: &Reference) {
        self.repositories.remove(&name.repository());
    }

    pub(super) fn require(&mut self, name: &Reference, auth: RegistryAuth) {
        self.repositories.entry(name.repository()).or_default().wanted = Some(auth);
    }

    /// Answer to a pull of `name` (in canonical form): the image, and the digest that the name resolves to.
    pub(super) fn resolve(&self, name: &Reference, auth: Option<&RegistryAuth>) -> Result<(FakeImage, Digest)> {
        let missing = || Error::new(Kind::NotFound, format!("pull {name}: not found"));
        let repository = self.repositories.get(&name.repository()).ok_or_else(missing)?;
        if let Some(wanted) = &repository.wanted {
            match auth {
                Some(auth) if auth == wanted => {}
                Some(auth) if !auth.is_anonymous() => {
                    return Err(Error::new(Kind::PermissionDenied, format!("pull {name}: access denied")));
                }
                _ => return Err(Error::new(Kind::Unauthenticated, format!("pull {name}: authentication required"))),
            }
        }
        let digest = match (name.digest(), name.tag()) {
            (Some(digest), _) => digest,
            (None, Some(tag)) => repository.tags.get(tag).ok_or_else(missing)?,
            (None, None) => return Err(missing()),
        };
        let image = repository.manifests.get(digest).ok_or_else(missing)?;
        Ok((image.clone(), digest.clone()))
    }
}
