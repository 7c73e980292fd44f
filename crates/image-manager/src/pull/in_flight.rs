//! Pulls that run and pulls that ended, as others see them. Plain data, the same on both sides of the admin API. Made by
//! [`PullBoard`](super::board::PullBoard).

use cri_api::LayerState;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PodRef;

/// The origin of the wish for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum WantedBy {
    /// A pod of this node.
    Pod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
    },
    /// A client of the CRI socket that named no pod.
    Client,
    /// A command of the command line, or a request to the admin API.
    Command,
}

impl WantedBy {
    /// The pod, if it has a name; otherwise a command.
    pub(crate) fn pod_or_command(pod: &PodRef) -> Self {
        match pod.name.as_str() {
            "" => Self::Command,
            name => Self::Pod { namespace: pod.namespace.clone(), name: name.to_owned() },
        }
    }
}

impl std::fmt::Display for WantedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(f, "pod {namespace}/{name}"),
            Self::Client => f.write_str("CRI client"),
            Self::Command => f.write_str("command"),
        }
    }
}

/// The step that a pull has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullStep {
    /// Waits for its turn.
    Queued,
    /// Runs; the service behind reports no progress, or none yet.
    Pulling,
    /// The registry is asked what the name stands for.
    Resolving,
    /// Layers are fetched and unpacked.
    Fetching,
    /// The image is being made durable and visible.
    Committing,
}

/// A pull that runs or waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullInFlight {
    /// Number of the pull, unique in its process.
    pub id: u64,
    /// The image as it was requested.
    pub image: String,
    /// Up to 16 of those that wait for it.
    pub wanted_by: Vec<WantedBy>,
    /// How many wait for it; 0: it goes on for a while in case somebody comes back.
    pub waiters: usize,
    /// When it was first wanted.
    pub since: Timestamp,
    /// How long that is ago.
    pub elapsed_milliseconds: u64,
    /// How far it has come.
    pub step: PullStep,
    /// How many pulls are admitted before it and itself: 1 is the next. Only while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// Compressed bytes that have to come; layers that are present or come with another pull are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Compressed bytes that came.
    pub received_bytes: u64,
    /// Bytes of layers that were unpacked.
    pub unpacked_bytes: u64,
    /// Compressed bytes that came per second, over the last seconds; only while layers are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The layers, lowest first; `None` where the service tells of none: before the name is resolved, and always where a container
    /// runtime pulls by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<LayerInFlight>>,
}

/// A layer of a pull that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerInFlight {
    /// Digest of the compressed blob.
    pub digest: String,
    /// Compressed size.
    pub size_bytes: u64,
    /// Compressed bytes that came.
    pub received_bytes: u64,
    /// Bytes of the tar stream that were unpacked.
    pub unpacked_bytes: u64,
    /// The state of the layer.
    pub state: LayerState,
}

/// The end of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullOutcome {
    /// The image is here.
    Pulled,
    /// The image was here when the turn of the pull came: nothing was pulled.
    Present,
    /// The pull failed.
    Failed,
    /// Nobody waited for it any more, or the process ended.
    Cancelled,
}

/// A pull that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedPull {
    /// Number of the end, unique in its process and rising by one.
    pub number: u64,
    /// The number that the pull had while it ran.
    pub id: u64,
    /// The image as it was requested.
    pub image: String,
    /// Up to 16 of those that wanted it.
    pub wanted_by: Vec<WantedBy>,
    /// When it was first wanted.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How long it took, the wait for its turn included.
    pub duration_milliseconds: u64,
    /// How long it waited for its turn.
    pub queued_milliseconds: u64,
    /// Compressed bytes that came.
    pub received_bytes: u64,
    /// How it ended.
    pub outcome: PullOutcome,
    /// Id of the image as the runtime has it, where it is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_ref: Option<String>,
    /// Of a failure: its cause in one word, as in the metric `imagelet_pull_failures_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Of a failure: the last error, one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
