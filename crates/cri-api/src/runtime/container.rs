//! Containers: their configuration, and their form in lists and statuses.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Device, LinuxContainerResources, LinuxContainerSecurityContext, Mount, Signal};
use crate::ImageSpec;

/// State of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know the state.
    #[default]
    Unknown,
}

/// Name and attempt of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMetadata {
    /// Name within the pod.
    pub name: String,
    /// Which attempt at creating it.
    pub attempt: u32,
}

/// A container, as a list shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Id.
    pub id: String,
    /// Sandbox it runs in.
    pub pod_sandbox_id: String,
    /// Metadata.
    pub metadata: ContainerMetadata,
    /// Image as specified.
    pub image: ImageSpec,
    /// Image ref: id or digest, as the runtime likes.
    pub image_ref: String,
    /// Image id; empty from runtimes of before CRI 0.33.
    pub image_id: String,
    /// State.
    pub state: ContainerState,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Restricts a list of containers; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// Id.
    pub id: Option<String>,
    /// State.
    pub state: Option<ContainerState>,
    /// Sandbox.
    pub pod_sandbox_id: Option<String>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}

/// Configuration that a container is made from. Its environment may hold secrets, so it cannot be serialised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Metadata.
    pub metadata: ContainerMetadata,
    /// The image: the reference that the pull returned, and the name that the user wrote.
    pub image: ImageSpec,
    /// Program and first arguments; empty: the image's entry point.
    pub command: Vec<String>,
    /// Arguments after `command`; empty, without a command: the image's.
    pub args: Vec<String>,
    /// Working directory; empty: the image's.
    pub working_dir: String,
    /// Environment in addition to the image's.
    pub envs: Vec<EnvVar>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Fully qualified names of CDI devices.
    pub cdi_devices: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations; runtimes may read them.
    pub annotations: BTreeMap<String, String>,
    /// Log file, relative to [`PodSandboxConfig::log_directory`](super::PodSandboxConfig::log_directory).
    pub log_path: String,
    /// Standard input is kept open.
    pub stdin: bool,
    /// Standard input is closed when the first attached client disconnects.
    pub stdin_once: bool,
    /// The container has a terminal.
    pub tty: bool,
    /// Settings that only Linux has.
    pub linux: LinuxContainerConfig,
    /// The signal that ends it; `None`: the image's, or SIGTERM.
    pub stop_signal: Option<Signal>,
}

/// Configuration that a container on Linux is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxContainerConfig {
    /// Limits of its resources.
    pub resources: LinuxContainerResources,
    /// Security.
    pub security: LinuxContainerSecurityContext,
}

/// A variable of a container's environment. Its value may be secret: `Debug` shows none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvVar {
    /// Name.
    pub key: String,
    /// Value; bytes, because a secret's may be no text.
    pub value: Vec<u8>,
}

impl EnvVar {
    /// Creates a variable.
    #[must_use]
    pub fn new(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvVar({:?}=…)", self.key)
    }
}

/// Answer of [`RuntimeService::container_status`](super::RuntimeService::container_status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: ContainerMetadata,
    /// State.
    pub state: ContainerState,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Start, nanoseconds since the epoch; 0: not started.
    pub started_at: i64,
    /// End, nanoseconds since the epoch; 0: not ended.
    pub finished_at: i64,
    /// Exit code, where it has ended; 128 and the signal's number where a signal ended it.
    pub exit_code: i32,
    /// Image as specified.
    pub image: ImageSpec,
    /// Image ref: id or digest, as the runtime likes.
    pub image_ref: String,
    /// Image id; empty from runtimes of before CRI 0.33.
    pub image_id: String,
    /// CamelCase reason of its state: `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Log file, absolute.
    pub log_path: String,
    /// Limits of its resources, where the runtime reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<LinuxContainerResources>,
    /// User and groups of its first process, where the runtime reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
    /// The signal that ends the container, if the runtime reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<Signal>,
    /// Additional information of the runtime; only with `verbose`.
    pub info: BTreeMap<String, String>,
}

/// User and groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUser {
    /// User id.
    pub uid: i64,
    /// Group id.
    pub gid: i64,
    /// Groups in addition to the first one.
    pub supplemental_groups: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value_of_an_environment() {
        let config = ContainerConfig { envs: vec![EnvVar::new("TOKEN", "swordfish")], ..ContainerConfig::default() };
        let shown = format!("{config:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("swordfish") && !shown.contains("115, 119"), "{shown}");
    }
}
