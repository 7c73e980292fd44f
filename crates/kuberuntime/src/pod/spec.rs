//! [`PodSpec`] and [`Container`]: what the pod runner needs of the API's types with their derived values: defaults, quantities
//! and words that were read, and all kinds of containers as one type. Everything inside them is of the API. Made by
//! [`super::convert`].

use std::collections::BTreeMap;
use std::fmt;

use image_manager::PullPolicy;
use k8s_openapi::api::core::v1::{
    ContainerPort, ContainerRestartRule, EnvFromSource, EnvVar, HostAlias, Lifecycle, PodDNSConfig, PodSecurityContext,
    Probe, SecurityContext, Volume, VolumeMount,
};
use oci::Quantity;

use super::words::{DnsPolicy, RestartPolicy, TerminationMessagePolicy};

/// Specification of a pod. Empty texts and lists are not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSpec {
    /// Volumes that containers may mount.
    pub volumes: Vec<Volume>,
    /// Containers that run before the normal ones, in order, and sidecars.
    pub init_containers: Vec<Container>,
    /// Normal containers; at least one.
    pub containers: Vec<Container>,
    /// Containers for debugging, which are added later.
    pub ephemeral_containers: Vec<EphemeralContainer>,
    /// Treatment of containers that have ended; `Always` by default.
    pub restart_policy: Option<RestartPolicy>,
    /// Grace period of containers in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Maximum run time of the pod in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// Source of the pod's name servers.
    pub dns_policy: Option<DnsPolicy>,
    /// Additions to that source.
    pub dns_config: Option<PodDNSConfig>,
    /// The account under which it runs.
    pub service_account_name: String,
    /// The node it is meant for.
    pub node_name: String,
    /// True if the pod has the node's network.
    pub host_network: bool,
    /// True if the pod sees the node's processes.
    pub host_pid: bool,
    /// True if the pod has the node's inter-process communication.
    pub host_ipc: bool,
    /// True if the pod's containers see each other's processes.
    pub share_process_namespace: Option<bool>,
    /// Rights of the pod.
    pub security_context: PodSecurityContext,
    /// Names of the secrets with which its images may be pulled.
    pub image_pull_secrets: Vec<String>,
    /// Host name; the pod's name unless it is set.
    pub hostname: String,
    /// Subdomain behind the host name.
    pub subdomain: String,
    /// A host name that replaces any other.
    pub hostname_override: Option<String>,
    /// True if the host name is the fully qualified one.
    pub set_hostname_as_fqdn: Option<bool>,
    /// Lines for the hosts file.
    pub host_aliases: Vec<HostAlias>,
    /// Priority class; only the two of the system have a value without an API server.
    pub priority_class_name: String,
    /// Priority, higher for pods that are evicted later; 0 unless it is set.
    pub priority: Option<i32>,
    /// Runtime handler: a runtime class means the handler of its name.
    pub runtime_class_name: String,
}

impl PodSpec {
    /// Returns the restart policy that is in force.
    #[must_use]
    pub fn restart_policy(&self) -> RestartPolicy {
        self.restart_policy.unwrap_or(RestartPolicy::Always)
    }
}

/// A container of a pod, of any kind. Empty texts and lists are not set.
#[derive(Clone, Default, PartialEq)]
pub struct Container {
    /// Name within the pod.
    pub name: String,
    /// Image as written.
    pub image: String,
    /// Pull policy of the image.
    pub image_pull_policy: Option<PullPolicy>,
    /// Program, instead of the image's.
    pub command: Vec<String>,
    /// Arguments, instead of the image's.
    pub args: Vec<String>,
    /// Working directory, instead of the image's.
    pub working_dir: String,
    /// Ports that the container listens on.
    pub ports: Vec<ContainerPort>,
    /// Variables from whole documents.
    pub env_from: Vec<EnvFromSource>,
    /// Environment variables; later ones may use earlier ones.
    pub env: Vec<EnvVar>,
    /// Requests and limits.
    pub resources: Resources,
    /// A restart policy of its own; an init container that has `Always` is a sidecar.
    pub restart_policy: Option<RestartPolicy>,
    /// Restarts by exit code, which take precedence over the policy.
    pub restart_policy_rules: Vec<ContainerRestartRule>,
    /// Volumes that it sees.
    pub volume_mounts: Vec<VolumeMount>,
    /// Liveness probe: fails when the container has to be restarted.
    pub liveness_probe: Option<Probe>,
    /// Readiness probe: succeeds while the container can serve.
    pub readiness_probe: Option<Probe>,
    /// Startup probe: succeeds once the container has started.
    pub startup_probe: Option<Probe>,
    /// Hooks after the start and before the stop.
    pub lifecycle: Lifecycle,
    /// File that it leaves a last message in.
    pub termination_message_path: String,
    /// Source of the container's last message.
    pub termination_message_policy: Option<TerminationMessagePolicy>,
    /// Rights of the container.
    pub security_context: Option<SecurityContext>,
    /// True if the container has a standard input.
    pub stdin: bool,
    /// True if standard input is closed after the first client has detached.
    pub stdin_once: bool,
    /// True if the container has a terminal.
    pub tty: bool,
}

impl Container {
    /// Returns true if an init container is a sidecar.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }
}

/// Shows no value of a variable and no header of a probe: people write secrets there.
impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<&str> = self.env.iter().map(|variable| &*variable.name).collect();
        let mut shown = f.debug_struct("Container");
        shown.field("name", &self.name).field("image", &self.image).field("variables", &variables);
        shown.finish_non_exhaustive()
    }
}

/// A container for debugging.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EphemeralContainer {
    /// The fields that all containers have.
    pub container: Container,
    /// The container whose processes it sees.
    pub target_container_name: String,
}

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The most that the container may use.
    pub limits: BTreeMap<String, Quantity>,
    /// The amounts that are reserved; those of limits unless they are set.
    pub requests: BTreeMap<String, Quantity>,
}
