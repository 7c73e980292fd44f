//! Pulls that run and pulls that ended, as others see them. Plain data, the same on both sides of the admin API. Made by
//! [`PullBoard`](super::board::PullBoard).

use cri_api::LayerState;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PodRef;

/// Origin of a request for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum WantedBy {
    /// A pod on this node.
    Pod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
    },
    /// A CRI client that named no pod.
    Client,
    /// A command, or a request to the admin API.
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

/// Current step of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullStep {
    /// Queued.
    Queued,
    /// Running; the image service has reported no progress.
    Pulling,
    /// Resolving the name to a digest.
    Resolving,
    /// Layers are fetched and unpacked.
    Fetching,
    /// Committing the image.
    Committing,
}

/// A running or queued pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullInFlight {
    /// Number of the pull, unique in its process.
    pub id: u64,
    /// The image as it was requested.
    pub image: String,
    /// Up to 16 of the callers that wait for the pull.
    pub wanted_by: Vec<WantedBy>,
    /// Number of waiting callers. A pull without callers continues for a short time, so that a reconnecting caller can join it.
    pub waiters: usize,
    /// Time of the first request.
    pub since: Timestamp,
    /// Time since the first request.
    pub elapsed_milliseconds: u64,
    /// Current step.
    pub step: PullStep,
    /// Position in the queue; 1 is the next pull to start. Only while the pull is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// Compressed bytes to fetch, without layers that are present or fetched by another pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Compressed bytes received.
    pub received_bytes: u64,
    /// Uncompressed bytes unpacked.
    pub unpacked_bytes: u64,
    /// Compressed bytes per second over the last seconds; only while layers are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The layers, lowest first. Absent before the name is resolved, and always for pulls by a container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<LayerInFlight>>,
}

/// A layer of a running pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerInFlight {
    /// Digest of the compressed blob.
    pub digest: String,
    /// Compressed size.
    pub size_bytes: u64,
    /// Compressed bytes received.
    pub received_bytes: u64,
    /// Uncompressed bytes unpacked.
    pub unpacked_bytes: u64,
    /// The state of the layer.
    pub state: LayerState,
}

/// Outcome of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullOutcome {
    /// The image is present.
    Pulled,
    /// The image was already present when the pull left the queue; nothing was pulled.
    Present,
    /// The pull failed.
    Failed,
    /// All callers cancelled, or the process stopped.
    Cancelled,
}

/// A finished pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedPull {
    /// Sequence number of the finished pull, unique in its process.
    pub number: u64,
    /// ID of the pull while it was running.
    pub id: u64,
    /// The image as it was requested.
    pub image: String,
    /// Up to 16 of the callers that requested the pull.
    pub wanted_by: Vec<WantedBy>,
    /// Time of the first request.
    pub since: Timestamp,
    /// Time at which the pull finished.
    pub ended: Timestamp,
    /// Duration, including the time in the queue.
    pub duration_milliseconds: u64,
    /// Time in the queue.
    pub queued_milliseconds: u64,
    /// Compressed bytes received.
    pub received_bytes: u64,
    /// Outcome of the pull.
    pub outcome: PullOutcome,
    /// Image ID as reported by the runtime, if the image is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_ref: Option<String>,
    /// Cause of a failure, as in the metric `imagelet_pull_failures_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Last error of a failed pull, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
