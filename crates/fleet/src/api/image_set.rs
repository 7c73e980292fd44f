//! [`ImageSet`]: which images which nodes have, and how fast they get them. The status is in `image_set_status.rs`.
#![expect(unreachable_pub, reason = "kube derives schemas from copies of the types inside of functions")]
#![expect(clippy::duplicated_attributes, reason = "columns of the same type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Duration;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSetStatus;
use super::PullPolicy;
use super::schemas;

/// Images that a set of nodes has, and the rollout by which the nodes get them.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "imagelet.dev",
    version = "v1alpha1",
    kind = "ImageSet",
    plural = "imagesets",
    shortname = "imgset",
    category = "imagelet",
    status = "ImageSetStatus",
    derive = "PartialEq",
    doc = "ImageSet declares images that nodes have before pods need them. The nodes pull the images in waves, pin them and report their progress.",
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.nodes.desired",
        description = "Nodes that the set selects"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.nodes.ready",
        description = "Nodes that have every image"
    ),
    printcolumn(
        name = "Pulling",
        type_ = "integer",
        json_path = ".status.nodes.pulling",
        description = "Nodes that pull"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.nodes.failed",
        description = "Nodes whose last attempt failed"
    ),
    printcolumn(
        name = "Lost",
        type_ = "integer",
        json_path = ".status.nodes.lost",
        description = "Nodes that do not report",
        priority = 1
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].reason",
        description = "State of the rollout"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.nodeSelector) || has(self.nodeNames)", "select nodes by nodeSelector, nodeNames or both; nodeSelector: {} selects every node"),
    validation = ("!has(self.ttlSecondsAfterFinished) || self.mode == 'Once'", "ttlSecondsAfterFinished needs mode Once: a set of mode Keep never finishes")
)]
pub struct ImageSetSpec {
    /// Images that each selected node has.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub images: Vec<SetImage>,
    /// Labels of the nodes that get the images. An empty selector (`{}`) selects every node; without a selector only the nodes
    /// in `nodeNames` get them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Names of nodes that get the images, in addition to those that `nodeSelector` matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::node_names")]
    pub node_names: Vec<String>,
    /// Secrets of the type `kubernetes.io/dockerconfigjson` in the namespace of the fleet, with which the images are resolved
    /// and pulled. Secrets are read where they are and never copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pull_secrets: Vec<SecretReference>,
    /// `Keep`: the nodes keep the images, and pull again what disappears. `Once`: the set is finished when every node has pulled
    /// or failed once.
    #[serde(default)]
    pub mode: Mode,
    /// Seconds after which a finished set of mode `Once` is deleted. Without this field it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl_seconds_after_finished: Option<i64>,
    /// Protects the images from image collection on the node as long as the set names them. The protection begins before
    /// the pull.
    #[serde(default = "yes")]
    pub pin: bool,
    /// Time for which the images stay protected on a node after the set no longer wants them there.
    #[serde(default = "one_day")]
    #[schemars(schema_with = "schemas::duration")]
    pub release_after: Duration,
    /// Handling of an image that no set wants any more: `Release` leaves it to image collection, `Remove` removes it
    /// unless a container uses it.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// Pods that may use the images without a pull credential of their own.
    #[serde(default)]
    pub access: Access,
    /// Free space of the image file system that a pull for this set leaves: a percentage such as `10%`, or an amount of bytes
    /// such as `20Gi`. A node with less space reports `InsufficientSpace` and does not pull.
    #[serde(default = "ten_percent")]
    #[schemars(schema_with = "schemas::min_free")]
    pub min_free: IntOrString,
    /// `Once`: the controller resolves each tag once for a generation, so that all nodes get the same digest although the tag
    /// moves. `OnNode`: each node resolves the tags itself, for registries that the controller cannot reach.
    #[serde(default)]
    pub resolution: Resolution,
    /// A node that registers with the taint `imagelet.dev/images-not-ready` keeps it until it has the images of this set.
    #[serde(default)]
    pub required_for_ready: bool,
    /// Speed and limits of a rollout.
    #[serde(default)]
    pub rollout: Rollout,
}

impl Default for ImageSetSpec {
    fn default() -> Self {
        Self {
            images: Vec::new(),
            node_selector: None,
            node_names: Vec::new(),
            pull_secrets: Vec::new(),
            mode: Mode::default(),
            ttl_seconds_after_finished: None,
            pin: yes(),
            release_after: one_day(),
            on_delete: OnDelete::default(),
            access: Access::default(),
            min_free: ten_percent(),
            resolution: Resolution::default(),
            required_for_ready: false,
            rollout: Rollout::default(),
        }
    }
}

/// An image of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetImage {
    /// Reference of the image, with a tag, a digest or both, as in a pod: `registry.example/app:1.2`.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// `Always`: the node fetches the resolved digest although it has another image of this name. `IfNotPresent`: an image of
    /// this name that the node has is enough.
    #[serde(default)]
    pub pull_policy: PullPolicy,
}

/// Name of a secret in the namespace of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How long a set applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// As long as the set exists.
    #[default]
    Keep,
    /// Until every node has pulled or failed once.
    Once,
}

/// Handling of an image that no set wants any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// Image collection decides.
    #[default]
    Release,
    /// The node removes the image unless a container uses it.
    Remove,
}

/// Which process resolves tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resolution {
    /// The controller, once for each generation.
    #[default]
    Once,
    /// Each node.
    OnNode,
}

/// Pods that may use the images of a set without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Namespaces of these pods. Pods of other namespaces need a credential that the registry accepts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::namespaces")]
    pub namespaces: Vec<String>,
}

/// Speed and limits of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Number or percentage of the selected nodes that pull at the same time; at least one.
    #[serde(default = "ten_percent")]
    #[schemars(schema_with = "schemas::share")]
    pub max_concurrent: IntOrString,
    /// Number or percentage of the selected nodes that may fail. With more failures no further node starts.
    #[serde(default = "five_percent")]
    #[schemars(schema_with = "schemas::share")]
    pub max_failed: IntOrString,
    /// Starts no further nodes. Nodes that have started go on.
    #[serde(default)]
    pub paused: bool,
    /// Longest time without progress on any node before the rollout is reported as stalled. A released node that has not
    /// reported for this time is counted as lost.
    #[serde(default = "ten_minutes")]
    #[schemars(schema_with = "schemas::duration")]
    pub progress_deadline: Duration,
    /// Reaction when more than `maxFailed` nodes failed, or the progress deadline passed: `Stop` starts no further nodes,
    /// `Rollback` gives all nodes the images of the last generation that every node had.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Begins the rollout again when it changes, with tags that are resolved again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_time")]
    pub restarted_at: Option<Time>,
}

/// Reaction to a failed rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// No further node starts.
    #[default]
    Stop,
    /// Returns to the images of the last complete generation.
    Rollback,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_concurrent: ten_percent(),
            max_failed: five_percent(),
            paused: false,
            progress_deadline: ten_minutes(),
            on_failure: OnFailure::default(),
            restarted_at: None,
        }
    }
}

const fn yes() -> bool {
    true
}

fn ten_percent() -> IntOrString {
    IntOrString::String("10%".into())
}

fn five_percent() -> IntOrString {
    IntOrString::String("5%".into())
}

fn ten_minutes() -> Duration {
    std::time::Duration::from_secs(600).into()
}

fn one_day() -> Duration {
    std::time::Duration::from_secs(24 * 3600).into()
}
