//! Disk usage of images by layers, leases of layers, and mounts of images.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::ImageSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes that an image takes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUsage {
    /// Bytes that are freed when this image alone is removed.
    pub unique_bytes: u64,
    /// Bytes that other images use as well.
    pub shared_bytes: u64,
}

/// Leftovers of interrupted pulls, kept for reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedPulls {
    /// Completely fetched layers.
    pub layers: u64,
    /// Partially fetched blobs.
    pub blobs: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

impl fmt::Display for UnfinishedPulls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { layers, blobs, .. } = *self;
        write!(f, "{layers} layer{}, {blobs} part{}", plural(layers), plural(blobs))
    }
}

/// The layers of all images: a removal frees those that no remaining image uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageLayers {
    /// Bytes that each layer takes on disk.
    pub layers: Vec<u64>,
    /// The layers of each image, by image id.
    pub images: BTreeMap<String, LayersOf>,
}

/// The layers of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayersOf {
    /// Bytes on disk that are the image's own, in addition to its layers.
    pub own_bytes: u64,
    /// Indices into the list of all layers, each once.
    pub layers: Vec<u32>,
    /// Users of the layers other than the containers that a runtime lists, in words; the store refuses to remove the
    /// image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// The layers of an image or of a single layer, which stay in the store until this is dropped.
pub struct LayerLease {
    root: PathBuf,
    stack: serde_json::Value,
    _hold: Box<dyn Any + Send>,
}

impl LayerLease {
    /// Creates a lease that ends when `hold` is dropped.
    #[must_use]
    pub fn new(root: PathBuf, stack: serde_json::Value, hold: impl Any + Send) -> Self {
        Self { root, stack, _hold: Box::new(hold) }
    }

    /// Returns the root of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the leased layers, in the description of a stack by the store that reads them.
    #[must_use]
    pub fn stack(&self) -> &serde_json::Value {
        &self.stack
    }
}

impl fmt::Debug for LayerLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerLease").field("root", &self.root).field("stack", &self.stack).finish_non_exhaustive()
    }
}

/// A request to mount an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountRequest {
    /// The image to mount.
    pub image: ImageSpec,
    /// The directory on which its file system appears. It must exist.
    pub target: PathBuf,
    /// A directory for written files, empty or from an earlier mount; without one, the mount is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<PathBuf>,
}

/// Result of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountedImage {
    /// Image id of the mounted image.
    pub id: String,
    /// Number of layers below the mount.
    pub layers: usize,
}

/// A mount of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageMount {
    /// Image id of the mounted image.
    pub image: String,
    /// The directory on which it is mounted.
    pub target: PathBuf,
    /// True if it can be written to.
    pub writable: bool,
}
