//! The image sets that this node follows, over the API: the body of `GET /v1/image-sets`. Plain data. The binary makes the list, since
//! this crate knows no objects of a fleet. Called by the route; the status page shows the same list.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Returns the sets that this node follows; `None` until they are known.
pub type ImageSets = Arc<dyn Fn() -> Option<ImageSetList> + Send + Sync>;

/// Response of `GET /v1/image-sets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSetList {
    /// The image sets that select this node, by name.
    pub sets: Vec<ImageSetState>,
    /// Time of the last report about them that the API server accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report: Option<Timestamp>,
}

/// An image set on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSetState {
    /// Name of the set.
    pub name: String,
    /// State of the set on this node.
    pub phase: ImageSetPhase,
    /// Bytes of all images of the set.
    pub bytes: ImageSetBytes,
    /// Images of the set. Those that are not ready come first.
    pub images: Vec<ImageSetImage>,
}

/// State of an image set on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageSetPhase {
    /// Images are missing, and the node may not start yet.
    #[default]
    Waiting,
    /// Images are being fetched, or are queued.
    Pulling,
    /// Every image that can be resolved is present.
    Ready,
    /// An image failed, and nothing is being fetched. The node tries again.
    Failed,
}

/// An image of a set on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSetImage {
    /// Reference of the image, as in the set.
    pub name: String,
    /// Digest that the node has or fetches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// State of the image.
    pub phase: ImageSetImagePhase,
    /// Reason of the state in one word, such as `InsufficientSpace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of attempts since the image was last present.
    pub attempts: u32,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// True if image collection leaves the image alone.
    pub pinned: bool,
    /// Bytes of the image.
    pub bytes: ImageSetBytes,
}

/// State of an image of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ImageSetImagePhase {
    /// The last attempt failed; another one follows.
    Failed,
    /// Was present and disappeared.
    Gone,
    /// Being fetched.
    Pulling,
    /// Not started.
    #[default]
    Waiting,
    /// Present.
    Ready,
}

impl ImageSetImagePhase {
    /// Returns the state in words.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Gone => "removed",
            Self::Pulling => "pulling",
            Self::Waiting => "waiting",
            Self::Ready => "ready",
        }
    }
}

/// Compressed bytes of an image or a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSetBytes {
    /// Bytes to fetch, as far as they are known.
    pub total: u64,
    /// Bytes that were fetched or were present before.
    pub done: u64,
    /// Bytes fetched from the registry that the reference names.
    pub from_registry: u64,
    /// Bytes fetched from mirrors.
    pub from_mirrors: u64,
}
