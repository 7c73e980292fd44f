//! [`ImageSetStatus`]: what the controller writes into an `ImageSet`, and what nodes follow. Written by the controller only.
#![expect(unreachable_pub, reason = "kube derives schemas from copies of the types inside of functions")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PullPolicy;
use super::schemas;

/// State of a set. Nodes take the images, and the permission to pull, from this status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSetStatus {
    /// Generation of the set that the controller has handled. A node ignores a status that is older than its set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Generation whose images the nodes get, and a part of each node's rank. Smaller than `observedGeneration` after a
    /// rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_generation: Option<i64>,
    /// Hash of the fields of the set that begin a rollout when they change: images, selection of nodes, resolution and
    /// `restartedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub rollout_hash: Option<String>,
    /// Generation whose rollout failed, after a rollback from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<i64>,
    /// Images of the rollout with their digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub resolved: Vec<ResolvedImage>,
    /// Release threshold, sixteen hexadecimal digits: a node may start if its rank is not above. Without this field no node may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_rank")]
    pub released: Option<String>,
    /// Newest node that the threshold is for. A node that was created later waits until the controller has counted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_node: Option<NodeCursor>,
    /// Time at which the rollout of `rolloutGeneration` began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub rollout_start_time: Option<Time>,
    /// Last time at which a node made progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub last_progress_time: Option<Time>,
    /// Time at which a set of mode `Once` finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub finish_time: Option<Time>,
    /// Selected nodes by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Bytes that the nodes fetched for this rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<TransferredBytes>,
    /// Failures, grouped by image and reason, those of most nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub failures: Vec<FailureGroup>,
    /// Last rollout that ended on every node, to which a failed rollout returns if the set says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_complete: Option<CompletedRollout>,
    /// `Resolved`: every image has a digest. `Progressing`: the rollout continues. `Ready`: every selected node has every image.
    /// `Degraded`: a node failed or was lost, or an image cannot be resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// An image of a rollout with its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedImage {
    /// Reference of the image, as in the set.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// Digest of the manifest or index. Without a digest, nodes do not pull the image unless the set has `resolution: OnNode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub digest: Option<String>,
    /// When a node pulls the image.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Reason why the image has no digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Error of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
}

/// A node in the order of creation; nodes of the same second are ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCursor {
    /// Creation time of the node.
    #[schemars(schema_with = "schemas::time")]
    pub creation_time: Time,
    /// Name of the node.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// Selected nodes by state; the five states add up to `desired`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that the set selects.
    #[schemars(schema_with = "schemas::count")]
    pub desired: u32,
    /// Nodes that may not start yet, or have not reported a start.
    #[schemars(schema_with = "schemas::count")]
    pub waiting: u32,
    /// Nodes that pull.
    #[schemars(schema_with = "schemas::count")]
    pub pulling: u32,
    /// Nodes that have every image.
    #[schemars(schema_with = "schemas::count")]
    pub ready: u32,
    /// Nodes whose last attempt failed; they try again.
    #[schemars(schema_with = "schemas::count")]
    pub failed: u32,
    /// Released nodes that do not report.
    #[schemars(schema_with = "schemas::count")]
    pub lost: u32,
}

/// Bytes of a rollout or an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferredBytes {
    /// Compressed bytes to fetch, as far as they are known.
    #[serde(default)]
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub total: u64,
    /// Bytes that were fetched or were present before.
    #[serde(default)]
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub done: u64,
    /// Bytes fetched from the registry that the reference names.
    #[serde(default)]
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub from_registry: u64,
    /// Bytes fetched from mirrors.
    #[serde(default)]
    #[schemars(schema_with = "schemas::amount_of_bytes")]
    pub from_mirrors: u64,
}

/// Failures of one image with one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureGroup {
    /// Reference of the image; empty if the failure is not that of an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub image: String,
    /// Reason in one word, such as `InsufficientSpace`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Message of one of the nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
    /// Number of nodes.
    #[schemars(schema_with = "schemas::count")]
    pub count: u32,
    /// Names of some of the nodes.
    #[serde(default)]
    #[schemars(length(max = 5))]
    pub nodes: Vec<String>,
}

/// A rollout that every selected node completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletedRollout {
    /// Generation of the set.
    pub generation: i64,
    /// Images with their digests.
    #[schemars(length(max = 500))]
    pub images: Vec<ResolvedImage>,
}
