//! [`NodeImages`]: what one node has of the sets that select it. Written by that node only, read by the controller.
#![expect(unreachable_pub, reason = "kube derives schemas from copies of the types inside of functions")]
#![expect(clippy::duplicated_attributes, reason = "columns of the same type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TransferredBytes;
use super::schemas;

/// An empty spec: the object has the name of its node and a status.
#[derive(CustomResource, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "imagelet.dev",
    version = "v1alpha1",
    kind = "NodeImages",
    plural = "nodeimages",
    singular = "nodeimages",
    shortname = "nimg",
    category = "imagelet",
    no_spec,
    status = "NodeImagesStatus",
    derive = "PartialEq",
    doc = "NodeImages reports the images of ImageSets on the node of the same name. The node writes it; nothing in it is a wish.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Every image of every set is present"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Reason of the state"
    ),
    printcolumn(
        name = "Free",
        type_ = "integer",
        json_path = ".status.disk.freeBytes",
        description = "Free bytes of the image file system",
        priority = 1
    ),
    printcolumn(
        name = "Reported",
        type_ = "date",
        json_path = ".status.reportTime",
        description = "Time of the last report"
    )
)]
pub struct NodeImagesSpec {}

/// Report of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImagesStatus {
    /// Time of the report, by the clock of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub report_time: Option<Time>,
    /// Version of the agent on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agent_version: Option<String>,
    /// Sets that select the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sets: Vec<SetReport>,
    /// Images of these sets. If there are more than fit, those that are not ready come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 300))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["set".into(), "name".into()]))]
    pub images: Vec<ImageReport>,
    /// Space of the image file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
    /// `Ready`: every image of every set that selects the node is present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// State of a set on the node, with figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetReport {
    /// Name of the set.
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID of the set, because a set that was deleted may have a successor of the same name.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Value of the set's `rolloutGeneration` that the report is for.
    pub generation: i64,
    /// State of the set on the node.
    pub phase: SetPhase,
    /// Number of the set's images.
    #[schemars(schema_with = "schemas::count")]
    pub images: u32,
    /// Number of the set's images that are present.
    #[schemars(schema_with = "schemas::count")]
    pub ready: u32,
    /// Bytes of the set's images.
    #[serde(default)]
    pub bytes: TransferredBytes,
}

/// State of a set on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SetPhase {
    /// Images are missing, and the node may not start yet.
    #[default]
    Waiting,
    /// The node fetches images, or waits for its own turn to fetch them.
    Pulling,
    /// Every image that can be resolved is present, whether the node was released or not.
    Ready,
    /// The last attempt for at least one image failed, and nothing is being fetched. The node tries again.
    Failed,
}

/// State of an image of a set on the node, with figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageReport {
    /// Name of the set.
    #[schemars(length(max = 253))]
    pub set: String,
    /// Reference of the image, as in the set.
    #[schemars(length(max = 512))]
    pub name: String,
    /// Digest that the node has or fetches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub digest: Option<String>,
    /// State of the image.
    pub phase: ImagePhase,
    /// Reason of the state in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
    /// Bytes of the image, by source.
    #[serde(default)]
    pub bytes: TransferredBytes,
    /// Number of attempts since the image was last present.
    #[serde(default)]
    #[schemars(schema_with = "schemas::count")]
    pub attempts: u32,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub retry_at: Option<Time>,
    /// Image collection on the node leaves the image alone.
    #[serde(default)]
    pub pinned: bool,
}

/// State of an image on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePhase {
    /// Not started.
    #[default]
    Waiting,
    /// Being fetched.
    Pulling,
    /// Present.
    Ready,
    /// The last attempt failed; another one follows at `retryAt`.
    Failed,
    /// Was present and disappeared; it is fetched again.
    Gone,
}

/// Space of the image file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskReport {
    /// Size of the file system.
    #[serde(default)]
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub capacity_bytes: u64,
    /// Free bytes.
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub free_bytes: u64,
    /// Bytes of all images.
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub images_bytes: u64,
    /// Bytes of images that no container and no set needs.
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub reclaimable_bytes: u64,
}
