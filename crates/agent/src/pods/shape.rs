//! The fields of a Pod's JSON that people are shown, and nothing more: everything that is not there is empty.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name, labels and times of the object.
    pub metadata: Metadata,
    /// The pod as it should be.
    pub spec: Spec,
    /// The pod as it is.
    pub status: Status,
}

/// The fields of a pod's ObjectMeta that people are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Name of the pod; that of a static pod ends with the name of its node.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Uid of the pod; a later pod of the same name has another one.
    pub uid: String,
    /// Time of creation.
    pub creation_timestamp: Option<Timestamp>,
    /// Time of deletion, to which an API server has added the grace period; `None` for a pod that is not deleted.
    pub deletion_timestamp: Option<Timestamp>,
    /// Seconds that the containers of a deleted pod have to end.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels by key.
    pub labels: BTreeMap<String, String>,
    /// Annotations by key.
    pub annotations: BTreeMap<String, String>,
}

/// The fields of a PodSpec that people are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// Name of the node that runs the pod.
    pub node_name: String,
    /// Init containers in the order of their starts; sidecars are among them.
    pub init_containers: Vec<Container>,
    /// Containers of the pod.
    pub containers: Vec<Container>,
    /// Ephemeral containers, which were added for debugging.
    pub ephemeral_containers: Vec<Container>,
    /// Volumes as JSON: each kind of them has fields of its own.
    pub volumes: Vec<Value>,
    /// Priority, which a PriorityClass or the API server has set.
    pub priority: Option<i32>,
    /// Name of the PriorityClass; empty where none is named.
    pub priority_class_name: String,
    /// Name of the service account; empty where none is named.
    pub service_account_name: String,
    /// Name of the RuntimeClass; empty for the default handler of the runtime.
    pub runtime_class_name: String,
}

/// A container as it should be. Its detailed fields stay JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Name of the container, unique in the pod.
    pub name: String,
    /// The image as the pod names it.
    pub image: String,
    /// Restart policy of the container itself: `Always` makes a sidecar of an init container. Empty where that of the pod applies.
    pub restart_policy: String,
    /// Entry point; empty for that of the image.
    pub command: Vec<String>,
    /// Arguments of the entry point; empty for those of the image.
    pub args: Vec<String>,
    /// Ports that the container declares.
    pub ports: Vec<Port>,
    /// Environment variables as JSON (EnvVar).
    pub env: Vec<Value>,
    /// ConfigMaps and Secrets that environment variables are made of, as JSON (EnvFromSource).
    pub env_from: Vec<Value>,
    /// Resources that the container requests and is limited to.
    pub resources: Resources,
    /// Volumes that the container sees.
    pub volume_mounts: Vec<Mount>,
    /// Liveness probe as JSON (Probe).
    pub liveness_probe: Option<Value>,
    /// Readiness probe as JSON (Probe).
    pub readiness_probe: Option<Value>,
    /// Startup probe as JSON (Probe).
    pub startup_probe: Option<Value>,
}

/// A port of a container (ContainerPort).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// Name of the port; empty where none is given.
    pub name: String,
    /// Port in the network namespace of the pod.
    pub container_port: i32,
    /// Port on the node; 0 where none is opened there.
    pub host_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Resources of a container by name, such as `cpu`; amounts are quantities, such as `100m`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Most that the container may use.
    pub limits: BTreeMap<String, String>,
    /// Amounts that are reserved for the container.
    pub requests: BTreeMap<String, String>,
}

/// A volume in a container (VolumeMount).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Mount {
    /// Name of the volume in the pod.
    pub name: String,
    /// Path in the container.
    pub mount_path: String,
    /// Path in the volume that is mounted; empty for its root.
    pub sub_path: String,
    /// True for a mount that cannot be written.
    pub read_only: bool,
}

/// The fields of a PodStatus that people are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// CamelCase reason for the state of the whole pod, such as `Evicted`; mostly empty.
    pub reason: String,
    /// Text to the reason, for people.
    pub message: String,
    /// Conditions of the pod, such as `Ready`.
    pub conditions: Vec<Condition>,
    /// Primary address of the node.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// Primary address of the pod; empty before the pod has its network.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// Addresses of the pod, the primary one first.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<Ip>,
    /// Time at which the node accepted the pod.
    pub start_time: Option<Timestamp>,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: String,
    /// Statuses of init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Statuses of containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of ephemeral containers.
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// An address of a pod (PodIP).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ip {
    /// IPv4 or IPv6 address.
    pub ip: String,
}

/// A condition of a pod (PodCondition).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Type: `PodScheduled`, `Initialized`, `ContainersReady`, `Ready` or that of a readiness gate.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase reason for the status.
    pub reason: String,
    /// Text to the reason, for people.
    pub message: String,
}

/// A container as it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container in the spec.
    pub name: String,
    /// State of the present run.
    pub state: State,
    /// State of the run before; empty before the first restart.
    pub last_state: State,
    /// True if the container can serve: it runs, and its readiness probe, if there is one, succeeds.
    pub ready: bool,
    /// Number of restarts of the container.
    pub restart_count: u32,
    /// Name of the image that the container runs.
    pub image: String,
    /// Id of the image, as the runtime has it.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// `RUNTIME://ID` of the container; empty before its creation.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// True once the startup probe, if there is one, has succeeded; `None` where the status does not say.
    pub started: Option<bool>,
}

/// The state of a container: at most one of the three is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// State of a container that has yet to start.
    pub waiting: Option<Waiting>,
    /// State of a container that runs.
    pub running: Option<Running>,
    /// State of a container that has ended.
    pub terminated: Option<Terminated>,
}

/// A container that has yet to start (ContainerStateWaiting).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// CamelCase reason for the wait, such as `ImagePullBackOff`.
    pub reason: String,
    /// Text to the reason, for people.
    pub message: String,
}

/// A container that runs (ContainerStateRunning).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Running {
    /// Time of the start.
    pub started_at: Option<Timestamp>,
}

/// A container that has ended (ContainerStateTerminated).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// Exit code of the process.
    pub exit_code: i32,
    /// Number of the signal that ended the process; 0 where the runtime names none.
    pub signal: i32,
    /// CamelCase reason for the end, such as `Completed`, `Error` or `OOMKilled`.
    pub reason: String,
    /// Text to the reason, for people: the termination message of the container.
    pub message: String,
    /// Time of the start.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub finished_at: Option<Timestamp>,
}

impl Pod {
    /// Reads a pod from JSON.
    pub fn of(value: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(value)
    }

    /// Returns true if a condition holds.
    pub fn is(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }

    /// Returns true if the pod has ended for good.
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
