//! Plain types of the view of a store that podman and CRI-O read. Asked for with
//! [`ImageEngine::podman_store`](crate::engine::ImageEngine::podman_store).

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The view to make or to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodmanStoreRequest {
    /// Removes the view instead of making it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
    /// Further places where podman keeps containers: its `graphroot`s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graph_roots: Vec<PathBuf>,
}

/// The view as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodmanStoreReport {
    /// The directory for `additionalimagestores`; null if there is no view now.
    pub directory: Option<PathBuf>,
    /// Number of shown images.
    pub images: usize,
    /// Images that it cannot show.
    pub hidden: Vec<HiddenImage>,
}

/// An image that podman is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HiddenImage {
    /// Image id.
    pub id: String,
    /// All names.
    pub names: Vec<String>,
    /// Why, in words.
    pub why: String,
}
