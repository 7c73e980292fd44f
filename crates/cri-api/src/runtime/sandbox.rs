//! Pod sandboxes: their configuration, and their form in lists and statuses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContainerStatus, LinuxContainerResources, LinuxSandboxSecurityContext, NamespaceOptions};

/// Name, uid, namespace and attempt of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSandboxMetadata {
    /// Pod name.
    pub name: String,
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Which attempt at creating it.
    pub attempt: u32,
}

/// Configuration that a sandbox is made from. A pull for a sandbox receives the same configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSandboxConfig {
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// Host name of the pod; empty with the node's network.
    pub hostname: String,
    /// Directory of the pod's logs, to which [`ContainerConfig::log_path`](super::ContainerConfig::log_path) is relative.
    pub log_directory: String,
    /// Name resolution; empty is the node's.
    pub dns: DnsConfig,
    /// Ports of the node that lead to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations; runtimes may read them.
    pub annotations: BTreeMap<String, String>,
    /// Settings that only Linux has.
    pub linux: LinuxPodSandboxConfig,
}

/// Configuration that a sandbox on Linux is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxPodSandboxConfig {
    /// Parent of the pod's cgroups, written as the [`CgroupDriver`](super::CgroupDriver) wants it. Empty: the runtime's.
    pub cgroup_parent: String,
    /// Security.
    pub security: LinuxSandboxSecurityContext,
    /// Kernel parameters of the pod's namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Resources that the sandbox itself needs, in addition to its containers.
    pub overhead: LinuxContainerResources,
    /// Resources that the containers of the pod may use together.
    pub resources: LinuxContainerResources,
}

/// Name resolution of a pod: what stands in its `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsConfig {
    /// Addresses of servers.
    pub servers: Vec<String>,
    /// Domains that are tried.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

/// A port of the node that leads to one of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortMapping {
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the pod.
    pub container_port: i32,
    /// Port of the node; 0: none.
    pub host_port: i32,
    /// Address of the node; empty: all.
    pub host_ip: String,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A pod sandbox, as a list shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSandbox {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// True if the sandbox is ready.
    pub ready: bool,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Handler it runs with.
    pub runtime_handler: String,
}

/// Restricts a list of sandboxes; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSandboxFilter {
    /// Id.
    pub id: Option<String>,
    /// Readiness.
    pub ready: Option<bool>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}

/// Answer of [`RuntimeService::pod_sandbox_status`](super::RuntimeService::pod_sandbox_status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSandboxStatus {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// True if the sandbox is ready.
    pub ready: bool,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Address of the pod; empty with the node's network, and before there is one.
    pub ip: String,
    /// Addresses of other families.
    pub additional_ips: Vec<String>,
    /// Namespaces of the pod.
    pub namespaces: NamespaceOptions,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Handler it runs with.
    pub runtime_handler: String,
    /// Containers of the pod, from runtimes that send events; otherwise empty.
    pub containers: Vec<ContainerStatus>,
    /// Time of this status, in nanoseconds since the epoch, from runtimes that send events; otherwise 0.
    pub timestamp: i64,
    /// Additional information of the runtime; only with `verbose`.
    pub info: BTreeMap<String, String>,
}

impl PodSandboxStatus {
    /// Returns all addresses, the primary one first.
    pub fn ips(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.ip).chain(&self.additional_ips).map(String::as_str).filter(|ip| !ip.is_empty())
    }
}
