//! [`Container`] and what is in it, but for its variables, its probes and its rights. Read by [`super::PodSpec`].

use std::collections::BTreeMap;

use image_manager::PullPolicy;
use oci::Quantity;
use serde_json::Value;

use super::handler::{Lifecycle, Probe};
use super::read::{self, Fields, Read, Word};
use super::security::SecurityContext;
use super::variable::{EnvFromSource, EnvVar};
use super::words::words;
use crate::field::{FieldErrors, FieldPath};

words! {
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
    /// Protocol of a port.
    Protocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
    }
}

words! {
    /// Where the message of a container that ended comes from.
    TerminationMessagePolicy {
        File = "File",
        /// The file, or the end of its log when it failed and the file is empty.
        FallbackToLogsOnError = "FallbackToLogsOnError",
    }
}

words! {
    /// Propagation of later mounts between node and container.
    MountPropagation {
        /// No.
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
        /// No.
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

impl Word for PullPolicy {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Always", Self::Always), ("IfNotPresent", Self::IfNotPresent), ("Never", Self::Never)];
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// Name within the pod.
    pub name: String,
    /// Image as written.
    pub image: String,
    /// When to pull it.
    pub image_pull_policy: Option<PullPolicy>,
    /// Program, instead of the image's.
    pub command: Vec<String>,
    /// Arguments, instead of the image's.
    pub args: Vec<String>,
    /// Working directory, instead of the image's.
    pub working_dir: String,
    pub ports: Vec<ContainerPort>,
    /// Variables from whole documents.
    pub env_from: Vec<EnvFromSource>,
    /// Variables.
    pub env: Vec<EnvVar>,
    /// Requests and limits.
    pub resources: Resources,
    /// A restart policy of its own; an init container that has `Always` is a sidecar.
    pub restart_policy: Option<RestartPolicy>,
    /// Restarts by exit code, which go before the policy.
    pub restart_policy_rules: Vec<RestartRule>,
    /// Volumes that it sees.
    pub volume_mounts: Vec<VolumeMount>,
    /// Liveness probe: fails when the container has to be restarted.
    pub liveness_probe: Option<Probe>,
    /// Readiness probe: succeeds while the container can serve.
    pub readiness_probe: Option<Probe>,
    /// Startup probe: succeeds once the container has come up.
    pub startup_probe: Option<Probe>,
    /// Hooks.
    pub lifecycle: Lifecycle,
    /// File that it leaves a last message in.
    pub termination_message_path: String,
    /// Where its last message comes from.
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

/// A container for debugging.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EphemeralContainer {
    pub container: Container,
    /// The container whose processes it sees.
    pub target_container_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Port of the node; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_port: i32,
    pub container_port: i32,
    pub protocol: Protocol,
    /// Address of the node.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
}

impl ContainerPort {
    /// Reads ports as they stand on a container.
    ///
    /// # Errors
    /// Everything that cannot be read.
    pub(crate) fn list_from_json(text: &str) -> Result<Vec<Self>, FieldErrors> {
        let (mut errors, path) = (FieldErrors::default(), FieldPath::new("ports"));
        let Ok(Value::Array(ports)) = serde_json::from_str(text) else {
            errors.invalid_plain(path, "text", "must be a list in JSON");
            return errors.into_result().map(|()| Vec::new());
        };
        let ports = ports.iter().filter_map(|port| read::object(port, path.clone(), &mut errors)).collect();
        errors.into_result().map(|()| ports)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub limits: BTreeMap<String, Quantity>,
    pub requests: BTreeMap<String, Quantity>,
}

/// Restart by exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartRule {
    /// Action of the rule.
    pub action: Option<RestartAction>,
    /// How the exit code is compared; `None`: no codes are given, which does not pass validation.
    pub operator: Option<ExitCodeOperator>,
    /// Exit codes.
    pub values: Vec<i64>,
}

/// A volume that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeMount {
    /// Name of the volume.
    pub name: String,
    /// Where the container sees it.
    pub mount_path: String,
    /// True if the mount is read-only.
    pub read_only: bool,
    /// Read-only treatment of mounts below.
    pub recursive_read_only: Option<RecursiveReadOnly>,
    /// The part of the volume that it sees.
    pub sub_path: String,
    /// The same, with `$(VAR)` in it.
    pub sub_path_expr: String,
    pub mount_propagation: Option<MountPropagation>,
}

impl Read for Container {
    fn read(fields: &mut Fields<'_>) -> Self {
        // Pods of this node are not resized in place.
        fields.ignored(&["resizePolicy"]);
        fields.not_supported(
            "volumeDevices",
            "block devices come from persistent volumes, which this node does not have",
        );
        Self {
            name: fields.string("name"),
            image: fields.string("image"),
            image_pull_policy: fields.word("imagePullPolicy"),
            command: fields.texts("command"),
            args: fields.texts("args"),
            working_dir: fields.string("workingDir"),
            ports: fields.list("ports"),
            env_from: fields.list("envFrom"),
            env: fields.list("env"),
            resources: fields.object("resources").unwrap_or_default(),
            restart_policy: fields.word("restartPolicy"),
            restart_policy_rules: fields.list("restartPolicyRules"),
            volume_mounts: fields.list("volumeMounts"),
            liveness_probe: fields.object("livenessProbe"),
            readiness_probe: fields.object("readinessProbe"),
            startup_probe: fields.object("startupProbe"),
            lifecycle: fields.object("lifecycle").unwrap_or_default(),
            termination_message_path: fields.string("terminationMessagePath"),
            termination_message_policy: fields.word("terminationMessagePolicy"),
            security_context: fields.object("securityContext"),
            stdin: fields.flag("stdin"),
            stdin_once: fields.flag("stdinOnce"),
            tty: fields.flag("tty"),
        }
    }
}

impl Read for EphemeralContainer {
    fn read(fields: &mut Fields<'_>) -> Self {
        let target_container_name = fields.string("targetContainerName");
        Self { container: Container::read(fields), target_container_name }
    }
}

impl Read for ContainerPort {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            name: fields.string("name"),
            host_port: fields.int("hostPort").unwrap_or_default(),
            container_port: fields.int("containerPort").unwrap_or_default(),
            protocol: fields.word("protocol").unwrap_or(Protocol::Tcp),
            host_ip: fields.string("hostIP"),
        }
    }
}

impl Read for Resources {
    fn read(fields: &mut Fields<'_>) -> Self {
        fields.not_supported("claims", "devices are not allocated dynamically on this node");
        Self { limits: fields.quantities("limits"), requests: fields.quantities("requests") }
    }
}

/// `exitCodes` of a rule.
struct ExitCodes(Option<ExitCodeOperator>, Vec<i64>);

impl Read for ExitCodes {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(fields.word("operator"), fields.longs("values"))
    }
}

impl Read for RestartRule {
    fn read(fields: &mut Fields<'_>) -> Self {
        let action = fields.word("action");
        let ExitCodes(operator, values) = fields.object("exitCodes").unwrap_or(ExitCodes(None, Vec::new()));
        Self { action, operator, values }
    }
}

impl Read for VolumeMount {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            name: fields.string("name"),
            mount_path: fields.string("mountPath"),
            read_only: fields.flag("readOnly"),
            recursive_read_only: fields.word("recursiveReadOnly"),
            sub_path: fields.string("subPath"),
            sub_path_expr: fields.string("subPathExpr"),
            mount_propagation: fields.word("mountPropagation"),
        }
    }
}
