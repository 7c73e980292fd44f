//! Reports of a runtime about itself: versions, conditions, handlers, features, configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Answer of [`RuntimeService::version`](super::RuntimeService::version).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Version of the kubelet runtime API: `0.1.0`.
    pub version: String,
    /// Name of the runtime.
    pub runtime_name: String,
    /// Version of the runtime.
    pub runtime_version: String,
    /// Version of CRI: `v1`.
    pub runtime_api_version: String,
}

/// A condition of a runtime, for example `RuntimeReady`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// True if the condition holds.
    pub status: bool,
    /// CamelCase reason.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A runtime handler that the runtime offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeHandler {
    /// Name of the handler; empty is the default one.
    pub name: String,
    /// Features of the handler; none, from a runtime that does not report them.
    pub features: RuntimeHandlerFeatures,
}

/// Features of a runtime handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeHandlerFeatures {
    /// Mounts that are read-only with all that is mounted below them.
    pub recursive_read_only_mounts: bool,
    /// User namespaces.
    pub user_namespaces: bool,
}

/// Features that a runtime has with every handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeFeatures {
    /// The policy for supplemental groups is honoured.
    pub supplemental_groups_policy: bool,
    /// User namespaces together with the node's network.
    pub user_namespaces_host_network: bool,
    /// Options of mounts.
    pub mount_options: bool,
}

/// Answer of [`RuntimeService::status`](super::RuntimeService::status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeStatus {
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Additional information of the runtime; only with `verbose`.
    pub info: BTreeMap<String, String>,
    /// Handlers.
    pub handlers: Vec<RuntimeHandler>,
    /// Features; none, from a runtime that does not say.
    pub features: RuntimeFeatures,
}

impl RuntimeStatus {
    /// Returns true if a condition of this type (`RuntimeReady`, `NetworkReady`) is reported and holds.
    #[must_use]
    pub fn holds(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status)
    }
}

/// The program that makes cgroups, and so how [`LinuxPodSandboxConfig::cgroup_parent`](super::LinuxPodSandboxConfig::cgroup_parent)
/// is written: as a path, or as the name of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// systemd; a parent is `name.slice`.
    Systemd,
    /// The runtime itself; a parent is a path.
    Cgroupfs,
}

/// Answer of [`RuntimeService::runtime_config`](super::RuntimeService::runtime_config).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeConfig {
    /// The driver for cgroups; `None` if the runtime does not report it, or reports an unknown one.
    pub cgroup_driver: Option<CgroupDriver>,
}
