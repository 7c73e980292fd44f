//! The fields of a Pod's JSON that people are shown, and nothing more: everything that is not there is empty.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) node_name: String,
    pub(crate) init_containers: Vec<Container>,
    pub(crate) containers: Vec<Container>,
    pub(crate) ephemeral_containers: Vec<Container>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) priority: Option<i32>,
    pub(crate) priority_class_name: String,
    pub(crate) service_account_name: String,
    pub(crate) runtime_class_name: String,
}

/// A container as it should be. What is told of it in detail stays JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) restart_policy: String,
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) ports: Vec<Port>,
    pub(crate) env: Vec<Value>,
    pub(crate) env_from: Vec<Value>,
    pub(crate) resources: Resources,
    pub(crate) volume_mounts: Vec<Mount>,
    pub(crate) liveness_probe: Option<Value>,
    pub(crate) readiness_probe: Option<Value>,
    pub(crate) startup_probe: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) container_port: i32,
    pub(crate) host_port: i32,
    pub(crate) protocol: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub(crate) limits: BTreeMap<String, String>,
    pub(crate) requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Mount {
    pub(crate) name: String,
    pub(crate) mount_path: String,
    pub(crate) sub_path: String,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) conditions: Vec<Condition>,
    #[serde(rename = "hostIP")]
    pub(crate) host_ip: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Vec<Ip>,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) qos_class: String,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
    pub(crate) ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ip {
    pub(crate) ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) last_state: State,
    pub(crate) ready: bool,
    pub(crate) restart_count: u32,
    pub(crate) image: String,
    #[serde(rename = "imageID")]
    pub(crate) image_id: String,
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    pub(crate) started: Option<bool>,
}

/// The state of a container: at most one of the three is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) waiting: Option<Waiting>,
    pub(crate) running: Option<Running>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Running {
    pub(crate) started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) signal: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

impl Pod {
    /// Of JSON that says what it is.
    pub(crate) fn of(value: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(value)
    }

    /// Returns true if a condition holds.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }

    /// Returns true if the pod has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
