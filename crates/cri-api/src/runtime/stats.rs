//! Use of resources by containers and pods. Every number may be missing: runtimes report those that they know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContainerMetadata, PodSandboxMetadata};
use crate::FilesystemUsage;

/// Use of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStats {
    /// Whose it is.
    pub attributes: ContainerAttributes,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuUsage>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUsage>,
    /// Writable layer of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writable_layer: Option<FilesystemUsage>,
    /// Swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapUsage>,
    /// Pressure on input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoUsage>,
}

/// Whose stats they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerAttributes {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: ContainerMetadata,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Restricts a list of containers' stats; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatsFilter {
    /// Id.
    pub id: Option<String>,
    /// Sandbox.
    pub pod_sandbox_id: Option<String>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}

/// Use of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSandboxStats {
    /// Whose it is.
    pub attributes: PodSandboxAttributes,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuUsage>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUsage>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkUsage>,
    /// Processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessUsage>,
    /// Pressure on input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoUsage>,
    /// Containers of the pod.
    pub containers: Vec<ContainerStats>,
}

/// Whose stats they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSandboxAttributes {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Restricts a list of pods' stats; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSandboxStatsFilter {
    /// Id.
    pub id: Option<String>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}

/// Use of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// CPU time so far, nanoseconds over all CPUs.
    pub usage_core_nano_seconds: Option<u64>,
    /// CPU time per second of late, nanoseconds.
    pub usage_nano_cores: Option<u64>,
    /// Pressure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiStats>,
}

/// Use of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// Bytes that cannot be dropped.
    pub working_set_bytes: Option<u64>,
    /// Left below the limit.
    pub available_bytes: Option<u64>,
    /// With what can be dropped.
    pub usage_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
    /// Page faults so far.
    pub page_faults: Option<u64>,
    /// Page faults so far that read from disk.
    pub major_page_faults: Option<u64>,
    /// Pressure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiStats>,
}

/// Use of swap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwapUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// Left below the limit.
    pub swap_available_bytes: Option<u64>,
    /// Used.
    pub swap_usage_bytes: Option<u64>,
}

/// Pressure on input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IoUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// Pressure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiStats>,
}

/// Pressure stall information, as the kernel's files give it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PsiStats {
    /// All tasks waited.
    pub full: PsiData,
    /// Some task waited.
    pub some: PsiData,
}

/// A line of pressure stall information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PsiData {
    /// Time waited so far, nanoseconds.
    pub total: u64,
    /// Percent over 10 seconds.
    pub avg10: f64,
    /// Percent over 60 seconds.
    pub avg60: f64,
    /// Percent over 300 seconds.
    pub avg300: f64,
}

/// Use of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// The interface of the default route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_interface: Option<NetworkInterfaceUsage>,
    /// The other interfaces.
    pub interfaces: Vec<NetworkInterfaceUsage>,
}

/// Traffic of one interface so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterfaceUsage {
    /// Name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: Option<u64>,
    /// Errors while receiving.
    pub rx_errors: Option<u64>,
    /// Bytes sent.
    pub tx_bytes: Option<u64>,
    /// Errors while sending.
    pub tx_errors: Option<u64>,
}

/// Processes of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessUsage {
    /// Time of the measurement, in nanoseconds since the epoch.
    pub timestamp: i64,
    /// Number of processes.
    pub process_count: Option<u64>,
}
