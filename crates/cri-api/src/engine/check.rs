//! Plain types of a check of the store. Asked for with [`ImageEngine::check_images`](crate::engine::ImageEngine::check_images).

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::convert::LayerShape;
use crate::engine::layers::UnfinishedPulls;

/// Scope of a check, and whether problems are repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckRequest {
    /// Make damaged images absent, delete what belongs to nothing, correct counts. What is whole stays.
    pub repair: bool,
    /// Also compare every file, directory and link with the layer from which it came.
    pub deep: bool,
    /// Only what was written last before an unclean stop. Nothing is checked when the last stop was a clean one.
    pub since_unclean_only: bool,
}

/// Result of a store check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckReport {
    /// Number of layers that were read.
    pub layers_checked: u64,
    /// Bytes of the layers that were read.
    pub bytes_checked: u64,
    /// Number of images whose documents and names were checked.
    pub images_checked: u64,
    /// Problems that were found.
    pub problems: Vec<Problem>,
    /// Ids of images that lack a layer and wait for being pulled again. Those of earlier repairs are among them.
    pub incomplete_images: Vec<String>,
    /// Formats of the layers on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_shapes: Option<LayerShapes>,
    /// Leftovers of interrupted pulls, kept for reuse. They are not problems and were not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished_pulls: Option<UnfinishedPulls>,
}

/// Formats of the layers on disk and of new layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerShapes {
    /// Number of layers that are directory trees.
    pub dir: u64,
    /// Number of layers that are EROFS files.
    pub erofs: u64,
    /// Format of newly unpacked layers.
    pub new: LayerShape,
    /// Why, in words that follow "new ones become EROFS files: ".
    pub why: String,
}

impl CheckReport {
    /// Returns true if there is no problem, or every problem is repaired.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.repaired)
    }
}

/// A problem in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// The layer, image, name or path that has the problem.
    pub subject: String,
    /// Human-readable description in one line.
    pub detail: String,
    /// IDs of the affected images.
    #[serde(default)]
    pub images: Vec<String>,
    /// True if the problem was repaired.
    #[serde(default)]
    pub repaired: bool,
}

/// Kinds of problems. The first ones make images unusable; the others waste space or tell wrong numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProblemKind {
    /// A layer is missing.
    MissingLayer,
    /// A layer is damaged.
    DamagedLayer,
    /// A kept compressed layer is missing or damaged. Its images are complete without it.
    DamagedBlob,
    /// A config, manifest or index is missing or does not match its digest.
    DamagedDocument,
    /// A record is unreadable or refers to a missing one.
    DamagedRecord,
    /// A name refers to no image or to the wrong image, or has a digest of another image.
    WrongName,
    /// A count or sum is wrong.
    WrongCount,
    /// An unreferenced layer.
    UnusedLayer,
    /// An unreferenced directory.
    Orphan,
    /// Leftover of a finished pull.
    LeftOver,
    /// A layer could not be looked at, which says nothing of the layer: the machine had not got what that takes.
    UncheckedLayer,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::MissingLayer,
        Self::DamagedLayer,
        Self::DamagedBlob,
        Self::DamagedDocument,
        Self::DamagedRecord,
        Self::WrongName,
        Self::WrongCount,
        Self::UnusedLayer,
        Self::Orphan,
        Self::LeftOver,
        Self::UncheckedLayer,
    ];

    /// Returns the kind in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingLayer => "missing layer",
            Self::DamagedLayer => "damaged layer",
            Self::DamagedBlob => "damaged blob",
            Self::DamagedDocument => "damaged document",
            Self::DamagedRecord => "damaged record",
            Self::WrongName => "wrong name",
            Self::WrongCount => "wrong count",
            Self::UnusedLayer => "unused layer",
            Self::Orphan => "orphan",
            Self::LeftOver => "left over",
            Self::UncheckedLayer => "unchecked layer",
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckProgress {
    /// Number of layers that were read.
    pub layers: u64,
    /// Layers to read in all.
    pub layers_total: u64,
    /// Bytes of their content that were read.
    pub bytes: u64,
    /// Bytes to read in all.
    pub bytes_total: u64,
}

/// Receiver of the progress of a check. The default one ignores it. Called from any thread, and must be quick.
#[derive(Clone, Default)]
pub struct CheckSink(Option<Arc<dyn Fn(CheckProgress) + Send + Sync>>);

impl CheckSink {
    /// Creates a sink that calls `f`.
    #[must_use]
    pub fn new(f: impl Fn(CheckProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    /// Reports how far the check is.
    pub fn report(&self, progress: CheckProgress) {
        if let Some(f) = &self.0 {
            f(progress);
        }
    }
}

impl fmt::Debug for CheckSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "CheckSink(set)" } else { "CheckSink(none)" })
    }
}
