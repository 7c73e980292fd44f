//! The fields of a Pod's JSON that people are shown, and nothing more: everything that is not there is empty.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    pub node_name: String,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
    pub volumes: Vec<Value>,
    pub priority: Option<i32>,
    pub priority_class_name: String,
    pub service_account_name: String,
    pub runtime_class_name: String,
}

/// A container as it should be. What is told of it in detail stays JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub ports: Vec<Port>,
    pub env: Vec<Value>,
    pub env_from: Vec<Value>,
    pub resources: Resources,
    pub volume_mounts: Vec<Mount>,
    pub liveness_probe: Option<Value>,
    pub readiness_probe: Option<Value>,
    pub startup_probe: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    pub name: String,
    pub container_port: i32,
    pub host_port: i32,
    pub protocol: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub limits: BTreeMap<String, String>,
    pub requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Mount {
    pub name: String,
    pub mount_path: String,
    pub sub_path: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    pub phase: String,
    pub reason: String,
    pub message: String,
    pub conditions: Vec<Condition>,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<Ip>,
    pub start_time: Option<Timestamp>,
    pub qos_class: String,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub container_statuses: Vec<ContainerStatus>,
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ip {
    pub ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub state: State,
    pub last_state: State,
    pub ready: bool,
    pub restart_count: u32,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub started: Option<bool>,
}

/// The state of a container: at most one of the three is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    pub waiting: Option<Waiting>,
    pub running: Option<Running>,
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Running {
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: i32,
    pub signal: i32,
    pub reason: String,
    pub message: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl Pod {
    /// Of JSON that says what it is.
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
