//! [`Container`] and what is in it, but for its variables, its probes and its rights. Read by [`super::PodSpec`].

use std::collections::BTreeMap;

use image_manager::PullPolicy;
use oci::Quantity;
use serde_json::Value;

use super::handler::{Lifecycle, Probe};
use super::macros::{object, words};
use super::read::{self, Json, ManifestFields, Plain};
use super::security::SecurityContext;
use super::variable::{EnvFromSource, EnvVar};
use manifest::{FieldErrors, FieldPath};

words! {
    /// Kind of a container: the list of the spec in which it stands.
    ContainerKind {
        /// An entry of `initContainers`; a sidecar if its restart policy is `Always`.
        Init = "init",
        /// An entry of `containers`.
        Normal = "container",
        /// An entry of `ephemeralContainers`.
        Ephemeral = "ephemeral",
    }
}

impl ContainerKind {
    /// The field of the spec.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Normal => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

words! {
    /// Treatment of a container that has ended.
    RestartPolicy {
        /// Started again.
        Always = "Always",
        /// Started again if it failed.
        OnFailure = "OnFailure",
        /// Left ended.
        Never = "Never",
    }
}

words! {
    /// Transport protocol of a port.
    #[derive(Default)]
    Protocol {
        /// TCP, the default.
        #[default]
        Tcp = "TCP",
        /// UDP (RFC 768).
        Udp = "UDP",
        /// SCTP (RFC 9260).
        Sctp = "SCTP",
    }
}

words! {
    /// Source of the message of a container that has ended.
    TerminationMessagePolicy {
        /// The file alone.
        File = "File",
        /// The file, or the end of its log when it failed and the file is empty.
        FallbackToLogsOnError = "FallbackToLogsOnError",
    }
}

words! {
    /// Propagation of later mounts between node and container.
    MountPropagation {
        /// Neither way; the default.
        None = "None",
        /// From the node into the container.
        HostToContainer = "HostToContainer",
        /// Both ways.
        Bidirectional = "Bidirectional",
    }
}

words! {
    /// Read-only treatment of the mounts below a read-only mount.
    RecursiveReadOnly {
        /// Mounts below stay writable; the default.
        Disabled = "Disabled",
        /// Where the runtime can.
        IfPossible = "IfPossible",
        /// Or the container does not start.
        Enabled = "Enabled",
    }
}

words! {
    /// Action of a restart rule.
    RestartAction {
        /// The container is started again.
        Restart = "Restart",
        /// All containers of the pod are removed and started again from the first init container on.
        RestartAllContainers = "RestartAllContainers",
    }
}

words! {
    /// How the exit code of a container is compared with those of a restart rule.
    ExitCodeOperator {
        /// The exit code is one of the values.
        In = "In",
        /// The exit code is none of the values.
        NotIn = "NotIn",
    }
}

impl Json for PullPolicy {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let words = [Self::Always, Self::IfNotPresent, Self::Never].map(|policy| (policy.as_str(), policy));
        read::word(&words, value, path, errors)
    }

    fn to_value(&self) -> Value {
        self.as_str().into()
    }
}

impl Plain for Protocol {}

impl Plain for Resources {}

impl Plain for ExitCodes {}

fn unsupported_in_container(fields: &mut ManifestFields<'_>) {
    // Pods of this node are not resized in place.
    fields.ignored(&["resizePolicy"]);
    fields.not_supported("volumeDevices", "block devices come from persistent volumes, which this node does not have");
}

fn unsupported_in_resources(fields: &mut ManifestFields<'_>) {
    fields.not_supported("claims", "devices are not allocated dynamically on this node");
}

object! {

    /// A container of a pod, of any kind.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Container (unsupported_in_container) {
        /// Name within the pod.
        pub name: String = "name",
        /// Image as written.
        pub image: String = "image",
        /// When to pull it.
        pub image_pull_policy: Option<PullPolicy> = "imagePullPolicy",
        /// Program, instead of the image's.
        pub command: Vec<String> = "command",
        /// Arguments, instead of the image's.
        pub args: Vec<String> = "args",
        /// Working directory, instead of the image's.
        pub working_dir: String = "workingDir",
        /// Ports that the container listens on.
        pub ports: Vec<ContainerPort> = "ports",
        /// Variables from whole documents.
        pub env_from: Vec<EnvFromSource> = "envFrom",
        /// Environment variables; later ones may use earlier ones.
        pub env: Vec<EnvVar> = "env",
        /// Requests and limits.
        pub resources: Resources = "resources",
        /// A restart policy of its own; an init container that has `Always` is a sidecar.
        pub restart_policy: Option<RestartPolicy> = "restartPolicy",
        /// Restarts by exit code, which go before the policy.
        pub restart_policy_rules: Vec<RestartRule> = "restartPolicyRules",
        /// Volumes that it sees.
        pub volume_mounts: Vec<VolumeMount> = "volumeMounts",
        /// Liveness probe: fails when the container has to be restarted.
        pub liveness_probe: Option<Probe> = "livenessProbe",
        /// Readiness probe: succeeds while the container can serve.
        pub readiness_probe: Option<Probe> = "readinessProbe",
        /// Startup probe: succeeds once the container has come up.
        pub startup_probe: Option<Probe> = "startupProbe",
        /// Hooks after the start and before the stop.
        pub lifecycle: Lifecycle = "lifecycle",
        /// File that it leaves a last message in.
        pub termination_message_path: String = "terminationMessagePath",
        /// Source of the container's last message.
        pub termination_message_policy: Option<TerminationMessagePolicy> = "terminationMessagePolicy",
        /// Rights of the container.
        pub security_context: Option<SecurityContext> = "securityContext",
        /// True if the container has a standard input.
        pub stdin: bool = "stdin",
        /// True if standard input is closed after the first client has detached.
        pub stdin_once: bool = "stdinOnce",
        /// True if the container has a terminal.
        pub tty: bool = "tty",
    }
}

impl Container {
    /// Returns true if an init container is a sidecar.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }
}

object! {
    /// A container for debugging.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct EphemeralContainer {
        /// The fields that all containers have.
        pub container: Container = flat,
        /// The container whose processes it sees.
        pub target_container_name: String = "targetContainerName",
    }
}

object! {

    /// A port of a container.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ContainerPort {
        /// Name by which probes and hooks may call it; may be empty.
        pub name: String = "name",
        /// Port of the node; 0 for none.
        pub host_port: i32 = "hostPort",
        /// Port in the network of the pod.
        pub container_port: i32 = "containerPort" always,
        /// Transport protocol.
        pub protocol: Protocol = "protocol" always,
        /// Address of the node.
        pub host_ip: String = "hostIP",
    }
}

impl ContainerPort {
    /// Reads ports as they stand on a container.
    ///
    /// # Errors
    /// Everything that cannot be read.
    pub(crate) fn list_from_json(text: &str) -> Result<Vec<Self>, FieldErrors> {
        read::from_text(text, "ports")
    }
}

object! {
    /// Amounts by the name of the resource.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Resources (unsupported_in_resources) {
        /// The most that the container may use.
        pub limits: BTreeMap<String, Quantity> = "limits",
        /// The amounts that are reserved; those of limits unless said.
        pub requests: BTreeMap<String, Quantity> = "requests",
    }
}

object! {
    /// Restart by exit code.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RestartRule {
        /// Action of a match; `None` does not pass validation.
        pub action: Option<RestartAction> = "action",
        /// Exit codes to which the rule applies.
        pub exit_codes: ExitCodes = "exitCodes",
    }
}

object! {
    /// Exit codes of a restart rule.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ExitCodes {
        /// How the exit code is compared; `None` does not pass validation.
        pub operator: Option<ExitCodeOperator> = "operator",
        /// Exit codes to compare with.
        pub values: Vec<i64> = "values",
    }
}

object! {
    /// A volume that a container sees.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct VolumeMount {
        /// Name of a volume of the pod.
        pub name: String = "name",
        /// Where the container sees it.
        pub mount_path: String = "mountPath",
        /// True if the container cannot write to the volume.
        pub read_only: bool = "readOnly",
        /// Read-only treatment of mounts below.
        pub recursive_read_only: Option<RecursiveReadOnly> = "recursiveReadOnly",
        /// The part of the volume that it sees.
        pub sub_path: String = "subPath",
        /// The same, with `$(VAR)` in it.
        pub sub_path_expr: String = "subPathExpr",
        /// Propagation of mounts; `None` unless said.
        pub mount_propagation: Option<MountPropagation> = "mountPropagation",
    }
}
