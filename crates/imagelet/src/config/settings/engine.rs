//! Settings of the embedded engine, with the defaults of [`EngineOptions`]. The limits on layers and images, their number in parallel,
//! parallel ranges and the resumption of transfers are no settings.

use std::path::PathBuf;

use image_service::{EngineOptions, UnsupportedImages};
use oci::Platform;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Durability, LayerFormat};

use crate::config::flag::Empty::Unset;
use crate::config::flag::Group::{Advanced, Engine as Group};
use crate::config::flag::flag;
use crate::config::form::{As, Choice, Size, Text, Words};

const LEAST_MEMORY: u64 = image_service::LEAST_MEMORY as u64;

impl Words for UnsupportedImages {
    const WORDS: &'static [(&'static str, Self)] = &[("refuse", Self::Refuse), ("runtime", Self::Runtime)];
}

impl Words for Durability {
    const WORDS: &'static [(&'static str, Self)] = &[("full", Self::Full), ("relaxed", Self::Relaxed)];
}

impl Words for LayerFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("auto", Self::Auto), ("erofs", Self::Erofs), ("dir", Self::Dir)];
}

/// The embedded engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Engine {
    #[serde(rename = "pullMemory", with = "As::<Size<LEAST_MEMORY, { 1 << 40 }>>")]
    #[schemars(
        description = "Memory that all pulls of the embedded engine together may use for buffers and decoders. A layer waits until it \
                       has the 1.8 to 2.8 MiB that it needs. A zstd window above a quarter of the limit is still used, one at a time",
        extend("imagelet" = flag(Group, "pull-memory"))
    )]
    pub(crate) memory: u64,
    #[serde(with = "As::<Text<Platform>>")]
    #[schemars(
        description = "Platform that is chosen from an index [default: the machine's]",
        extend("imagelet" = flag(Group, "platform").value("OS/ARCH[/VARIANT]").allowed("a platform such as linux/arm64"))
    )]
    pub(crate) platform: Platform,
    #[serde(rename = "signaturePolicy")]
    #[schemars(
        description = "Which images must be signed, by which keys, and which are rejected: a file in the form of \
                       /etc/containers/policy.json (docs/signatures.md). Read again when it changes. Without one every image is \
                       accepted. Behind a runtime imagelet must pull: not with pullEngine runtime, and auto is embedded",
        extend("imagelet" = flag(Group, "signature-policy").value("FILE").empty(Unset))
    )]
    pub(crate) signature_policy: Option<PathBuf>,
    #[serde(rename = "unsupportedImages", with = "As::<Choice<UnsupportedImages>>")]
    #[schemars(
        description = "What becomes of an image with encrypted layers or layers of an unknown type behind a runtime whose store \
                       imagelet fills. refuse: its pull fails; runtime: the runtime pulls it, without imagelet's limits and checks \
                       (docs/threat-model.md). Not with a signaturePolicy or pullEngine embedded, and never for an image whose \
                       descriptors have URLs",
        extend("imagelet" = flag(Advanced, "unsupported-images"))
    )]
    pub(crate) unsupported_images: UnsupportedImages,
    #[serde(with = "As::<Choice<Durability>>")]
    #[schemars(
        description = "full: a reported image survives a power cut; relaxed: the last images and their records may be lost, none is \
                       ever incomplete",
        extend("imagelet" = flag(Advanced, "durability"))
    )]
    pub(crate) durability: Durability,
    #[serde(rename = "keepBlobs")]
    #[schemars(
        description = "Keep compressed layers as they were fetched, for exports with the pulled manifest and for the repair of \
                       damaged layers. Takes about a third more disk",
        extend("imagelet" = flag(Advanced, "keep-blobs"))
    )]
    pub(crate) keep_blobs: bool,
    #[serde(rename = "layerFormat", with = "As::<Choice<LayerFormat>>")]
    #[schemars(
        description = "Shape of new layers on disk: one EROFS file, or a directory tree; auto: an EROFS file if the kernel mounts \
                       them, or without root, and a directory otherwise",
        extend("imagelet" = flag(Group, "layer-format"))
    )]
    pub(crate) layer_format: LayerFormat,
}

impl Default for Engine {
    fn default() -> Self {
        let options = EngineOptions::default();
        Self {
            memory: options.memory as u64,
            platform: options.platform,
            signature_policy: options.signature_policy,
            unsupported_images: options.unsupported_images,
            durability: options.store.durability,
            keep_blobs: options.keep_blobs,
            layer_format: options.store.layer_format,
        }
    }
}

impl Engine {
    /// Returns the engine's options by these settings.
    pub(crate) fn options(&self) -> EngineOptions {
        let mut options = EngineOptions {
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            platform: self.platform.clone(),
            signature_policy: self.signature_policy.clone(),
            unsupported_images: self.unsupported_images,
            keep_blobs: self.keep_blobs,
            ..EngineOptions::default()
        };
        options.store.durability = self.durability;
        options.store.layer_format = self.layer_format;
        options
    }
}
