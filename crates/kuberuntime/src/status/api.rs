//! [`PodStatus`]: the status of a pod in the shape of Kubernetes' own, to be printed as JSON. Plain data, made by
//! [`super::pod_status`]. Times have whole seconds, as there.

use jiff::Timestamp;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::pod::words;
use crate::qos::QosClass;

words! {
    /// Phase of a pod.
    Phase {
        /// A container has not started yet.
        Pending = "Pending",
        /// Running, or to be started again.
        Running = "Running",
        /// All of it ended, and well.
        Succeeded = "Succeeded",
        /// All of it ended, and something not well.
        Failed = "Failed",
    }
}

/// Status of a pod, with the field names of Kubernetes' `PodStatus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Phase of the pod.
    pub phase: Phase,
    /// Conditions, each type once.
    pub conditions: Vec<PodCondition>,
    /// Message about the end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason of the end in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Address of the node.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// All addresses of the node.
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    pub host_ips: Vec<PodIp>,
    /// Primary address of the pod; empty until there is one.
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// All addresses of the pod, the primary one first.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<PodIp>,
    /// Time at which this node accepted the pod.
    pub start_time: Timestamp,
    /// Init containers and sidecars, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Normal containers, in the order of the spec.
    pub container_statuses: Vec<ContainerStatus>,
    /// Ephemeral containers, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    /// Quality of service.
    pub qos_class: QosClass,
}

impl PodStatus {
    /// Returns every container status: init, normal, ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let init = self.init_container_statuses.iter();
        init.chain(&self.container_statuses).chain(&self.ephemeral_container_statuses)
    }

    /// Returns true if a condition holds.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }
}

/// An address, in an object of its own as in the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodIp {
    /// IPv4 or IPv6 address as text.
    pub ip: String,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    /// Time of the last change.
    pub last_transition_time: Timestamp,
    /// Reason of a false condition in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message about the status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Status of a container, with the field names of Kubernetes' `ContainerStatus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name within the pod.
    pub name: String,
    /// The present state.
    pub state: ContainerState,
    /// End of the run before.
    #[serde(rename = "lastState", serialize_with = "as_state")]
    pub last_state: Option<Terminated>,
    /// True if the container can serve; of an init container, true if it is done.
    pub ready: bool,
    /// Number of earlier runs.
    pub restart_count: u32,
    /// Image as the user wrote it.
    pub image: String,
    /// Image as the runtime names it.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// `containerd://…`.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// True if the container has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
}

/// Writes an absent earlier state as an empty object.
fn as_state<S: Serializer>(last: &Option<Terminated>, serializer: S) -> Result<S::Ok, S::Error> {
    match last {
        None => serializer.serialize_map(Some(0))?.end(),
        Some(terminated) => ContainerState::Terminated(terminated.clone()).serialize(serializer),
    }
}

/// State of a container, in the API an object with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerState {
    /// To be started.
    Waiting(Waiting),
    /// The process runs.
    Running(Running),
    /// The container has ended.
    Terminated(Terminated),
}

/// State of a container that does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Reason in one word.
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of a container that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// Time of the start, in whole seconds; `None` where the runtime does not say.
    pub started_at: Option<Timestamp>,
}

/// State of a container that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminated {
    /// Exit code; 137 where it is not known how the container ended.
    pub exit_code: i32,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Termination message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Time of the start; `None` if it is not known.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub finished_at: Option<Timestamp>,
    /// `containerd://…`.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}

impl ContainerState {
    /// Returns the end of the container, if it has ended.
    #[must_use]
    pub fn terminated(&self) -> Option<&Terminated> {
        match self {
            Self::Terminated(terminated) => Some(terminated),
            Self::Waiting(_) | Self::Running(_) => None,
        }
    }

    /// Returns true if the container runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}

/// Converts a time of CRI; 0 is none.
pub(super) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 {
        return None;
    }
    Timestamp::from_second(nanoseconds / 1_000_000_000).ok()
}

pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
