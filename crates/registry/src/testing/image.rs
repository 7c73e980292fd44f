//! [`ImageBuilder`]: an image from layers, by OCI's or Docker's types, and [`BuiltIndex`] over several.

use bytes::Bytes;
use oci::{Descriptor, Digest, Platform, Reference, media_type};
use serde_json::{Map, Value, json};

use super::layer::{BuiltLayer, ImageFormat};

/// Collects what makes an image.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    kind: ImageFormat,
    platform: Platform,
    layers: Vec<BuiltLayer>,
    run: Map<String, Value>,
    left_out: Vec<String>,
    extra: Map<String, Value>,
    annotations: Map<String, Value>,
    config_media_type: Option<String>,
    diff_ids: Option<Vec<Digest>>,
    created: String,
}

/// A finished image, all in memory.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// Bytes of the config blob; their digest is the image id.
    pub config: Bytes,
    /// Descriptor of the config.
    pub config_descriptor: Descriptor,
    /// Bytes of the manifest.
    pub manifest: Bytes,
    /// Descriptor of the manifest, with the platform, as it stands in an index.
    pub descriptor: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<BuiltLayer>,
}

/// An index over several images.
#[derive(Clone, Debug)]
pub struct BuiltIndex {
    /// Bytes of the index.
    pub bytes: Bytes,
    /// Descriptor of the index.
    pub descriptor: Descriptor,
    /// The images.
    pub images: Vec<BuiltImage>,
}

impl Default for ImageBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ImageBuilder {
    /// An image without layers for the platform that this runs on.
    #[must_use]
    pub fn new() -> Self {
        Self {
            kind: ImageFormat::Oci,
            platform: Platform::host().normalized(),
            layers: Vec::new(),
            run: Map::new(),
            left_out: Vec::new(),
            extra: Map::new(),
            annotations: Map::new(),
            config_media_type: None,
            diff_ids: None,
            created: "2024-01-01T00:00:00Z".into(),
        }
    }

    /// An image with one small layer, whose content and so all its digests depend on `seed`.
    #[must_use]
    pub fn tiny(seed: &str) -> BuiltImage {
        let layer = super::LayerBuilder::new().dir("etc/").file("etc/seed", seed);
        Self::new().layer(layer).build()
    }

    /// Puts a layer on top.
    #[must_use]
    pub fn layer(mut self, layer: impl Into<BuiltLayer>) -> Self {
        self.layers.push(layer.into());
        self
    }

    /// Docker's media types.
    #[must_use]
    pub fn docker(mut self) -> Self {
        self.kind = ImageFormat::Docker;
        self
    }

    /// Platform of the config.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> Self {
        self.platform = platform;
        self
    }

    /// `User` of the config.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.run("User", json!(user))
    }

    /// Appends `name=value` to `Env`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let list = self.run.entry("Env").or_insert_with(|| json!([]));
        list.as_array_mut().expect("it is a list").push(json!(format!("{name}={value}")));
        self
    }

    /// `Entrypoint`.
    #[must_use]
    pub fn entrypoint(self, words: &[&str]) -> Self {
        self.run("Entrypoint", json!(words))
    }

    /// `Cmd`.
    #[must_use]
    pub fn cmd(self, words: &[&str]) -> Self {
        self.run("Cmd", json!(words))
    }

    /// `WorkingDir`.
    #[must_use]
    pub fn working_dir(self, path: &str) -> Self {
        self.run("WorkingDir", json!(path))
    }

    /// Adds one of `Labels`.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        let labels = self.run.entry("Labels").or_insert_with(|| json!({}));
        labels.as_object_mut().expect("it is a map").insert(name.to_owned(), json!(value));
        self
    }

    /// Any field of the config's `config` object.
    #[must_use]
    pub fn run(mut self, field: &str, value: Value) -> Self {
        self.run.insert(field.to_owned(), value);
        self
    }

    /// Any field at the top of the config.
    #[must_use]
    pub fn field(mut self, field: &str, value: Value) -> Self {
        self.extra.insert(field.to_owned(), value);
        self
    }

    /// Leaves a field out at the top of the config.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        self.left_out.push(field.to_owned());
        self
    }

    /// An annotation of the manifest.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), json!(value));
        self
    }

    /// `created` of the config.
    #[must_use]
    pub fn created(mut self, time: &str) -> Self {
        self.created = time.to_owned();
        self
    }

    /// Calls the config by this media type, whatever it is.
    #[must_use]
    pub fn config_media_type(mut self, media_type: &str) -> Self {
        self.config_media_type = Some(media_type.to_owned());
        self
    }

    /// Diff ids that are not those of the layers.
    #[must_use]
    pub fn diff_ids(mut self, diff_ids: Vec<Digest>) -> Self {
        self.diff_ids = Some(diff_ids);
        self
    }

    /// Finishes config and manifest.
    #[must_use]
    pub fn build(self) -> BuiltImage {
        let diff_ids = self.diff_ids.unwrap_or_else(|| self.layers.iter().map(|l| l.diff_id.clone()).collect());
        let mut config = Map::new();
        config.insert("created".into(), json!(self.created));
        config.insert("architecture".into(), json!(self.platform.architecture));
        config.insert("os".into(), json!(self.platform.os));
        if let Some(variant) = &self.platform.variant {
            config.insert("variant".into(), json!(variant));
        }
        config.insert("config".into(), Value::Object(self.run));
        config.insert("rootfs".into(), json!({ "type": "layers", "diff_ids": diff_ids }));
        config.extend(self.extra);
        config.retain(|field, _| !self.left_out.contains(field));
        let config = to_bytes(&Value::Object(config));

        let (manifest_type, config_type) = match self.kind {
            ImageFormat::Oci => (media_type::OCI_MANIFEST, media_type::OCI_CONFIG),
            ImageFormat::Docker => (media_type::DOCKER_MANIFEST, media_type::DOCKER_CONFIG),
        };
        let config_type = self.config_media_type.as_deref().unwrap_or(config_type);
        let config_descriptor = Descriptor::new(config_type, Digest::sha256(&config), config.len() as u64);
        let layers: Vec<Descriptor> = self.layers.iter().map(|l| l.descriptor_as(self.kind)).collect();
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": config_descriptor,
            "layers": layers,
        });
        if !self.annotations.is_empty() {
            manifest["annotations"] = Value::Object(self.annotations);
        }
        let manifest = to_bytes(&manifest);
        let mut descriptor = Descriptor::new(manifest_type, Digest::sha256(&manifest), manifest.len() as u64);
        descriptor.platform = Some(self.platform);
        BuiltImage { config, config_descriptor, manifest, descriptor, layers: self.layers }
    }
}

impl BuiltImage {
    /// The same image with another descriptor of a layer in its manifest.
    ///
    /// # Panics
    /// There is no such layer.
    #[must_use]
    pub fn with_layer(mut self, number: usize, change: impl FnOnce(&mut Descriptor)) -> Self {
        let mut manifest: Value = serde_json::from_slice(&self.manifest).expect("it was written here");
        let layer = &mut manifest["layers"][number];
        let mut descriptor: Descriptor = serde_json::from_value(layer.take()).expect("there is such a layer");
        change(&mut descriptor);
        *layer = json!(descriptor);
        self.manifest = to_bytes(&manifest);
        self.descriptor.digest = Digest::sha256(&self.manifest);
        self.descriptor.size = self.manifest.len() as u64;
        self
    }

    /// The image id: digest of the config.
    #[must_use]
    pub fn id(&self) -> &Digest {
        &self.config_descriptor.digest
    }

    /// Digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.descriptor.digest
    }

    /// Config and layers with their digests.
    pub fn blobs(&self) -> impl Iterator<Item = (Digest, Bytes)> + '_ {
        let config = (self.config_descriptor.digest.clone(), self.config.clone());
        std::iter::once(config).chain(self.layers.iter().map(|l| (l.descriptor.digest.clone(), l.blob.clone())))
    }
}

impl BuiltIndex {
    /// An OCI index over these images.
    #[must_use]
    pub fn new(images: Vec<BuiltImage>) -> Self {
        Self::with_type(images, media_type::OCI_INDEX)
    }

    /// A Docker manifest list over these images.
    #[must_use]
    pub fn docker(images: Vec<BuiltImage>) -> Self {
        Self::with_type(images, media_type::DOCKER_INDEX)
    }

    fn with_type(images: Vec<BuiltImage>, media_type: &str) -> Self {
        let manifests: Vec<Descriptor> = images.iter().map(|i| i.descriptor.clone()).collect();
        let bytes = to_bytes(&json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests }));
        let descriptor = Descriptor::new(media_type, Digest::sha256(&bytes), bytes.len() as u64);
        Self { bytes, descriptor, images }
    }

    /// Digest of the index.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.descriptor.digest
    }
}

/// A Docker schema 1 manifest, as old registries have them; only its shape is right.
#[must_use]
pub fn schema1_manifest(reference: &Reference) -> Bytes {
    to_bytes(&json!({
        "schemaVersion": 1,
        "name": reference.path(),
        "tag": reference.tag().unwrap_or("latest"),
        "architecture": "amd64",
        "fsLayers": [{ "blobSum": Digest::sha256(b"").to_string() }],
        "history": [{ "v1Compatibility": "{\"id\":\"0\"}" }],
    }))
}

fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("JSON values serialise").into()
}
