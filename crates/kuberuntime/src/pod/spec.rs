//! [`PodSpec`] and what is of the pod as a whole. Read by [`super::Pod`].

use super::container::{Container, EphemeralContainer, RestartPolicy};
use super::read::{Fields, Read};
use super::security::PodSecurityContext;
use super::volume::Volume;
use super::words::words;

words! {
    /// Whom a pod asks for names.
    DnsPolicy {
        /// The cluster's name server, also with the node's network.
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        /// The cluster's name server, or the node's where there is none.
        ClusterFirst = "ClusterFirst",
        /// The node's name servers.
        Default = "Default",
        /// Only those of `dnsConfig`.
        None = "None",
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSpec {
    pub volumes: Vec<Volume>,
    /// Containers that run before the normal ones, in order, and sidecars.
    pub init_containers: Vec<Container>,
    /// Normal containers.
    pub containers: Vec<Container>,
    /// Containers for debugging, which come later.
    pub ephemeral_containers: Vec<EphemeralContainer>,
    /// Treatment of containers that have ended; `Always` by default.
    pub restart_policy: Option<RestartPolicy>,
    /// How long containers may take to end.
    pub termination_grace_period_seconds: Option<i64>,
    /// How long the pod may run at all.
    pub active_deadline_seconds: Option<i64>,
    /// Whom it asks for names.
    pub dns_policy: Option<DnsPolicy>,
    /// More of that.
    pub dns_config: Option<DnsConfig>,
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
    /// Host name; the pod's name unless said.
    pub hostname: String,
    /// Subdomain behind the host name.
    pub subdomain: String,
    /// A host name that replaces any other.
    pub hostname_override: Option<String>,
    /// True if the host name is the fully qualified one.
    pub set_hostname_as_fqdn: Option<bool>,
    /// Lines for the hosts file.
    pub host_aliases: Vec<HostAlias>,
    pub priority_class_name: String,
    pub priority: Option<i32>,
    /// Runtime handler: a runtime class means the handler of its name.
    pub runtime_class_name: String,
}

/// Name servers of a pod's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    /// Addresses.
    pub nameservers: Vec<String>,
    /// Domains that are tried behind a name.
    pub searches: Vec<String>,
    pub options: Vec<DnsOption>,
}

/// An option of a resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsOption {
    pub name: String,
    pub value: Option<String>,
}

/// A line of the hosts file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAlias {
    /// Address.
    pub ip: String,
    /// Names.
    pub hostnames: Vec<String>,
}

impl PodSpec {
    /// The restart policy that is in force.
    #[must_use]
    pub fn restart_policy(&self) -> RestartPolicy {
        self.restart_policy.unwrap_or(RestartPolicy::Always)
    }
}

/// An entry that is only a name.
struct Named(String);

impl Read for Named {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(fields.string("name"))
    }
}

/// The operating system that a pod is for.
struct Os;

impl Read for Os {
    fn read(fields: &mut Fields<'_>) -> Self {
        let path = fields.path().child("name");
        match fields.string("name").as_str() {
            "linux" => {}
            "" => fields.errors().required(path, ""),
            "windows" => fields.errors().not_supported(path, "this node runs Linux"),
            other => fields.errors().unsupported(path, other, &["linux", "windows"]),
        }
        Self
    }
}

impl Read for PodSpec {
    fn read(fields: &mut Fields<'_>) -> Self {
        // Where a pod goes and what it counts as there is decided; on one node they mean nothing.
        fields.ignored(&[
            "affinity",
            "enableServiceLinks",
            "nodeSelector",
            "overhead",
            "preemptionPolicy",
            "schedulerName",
            "tolerations",
            "topologySpreadConstraints",
        ]);
        refuse(fields);
        fields.object::<Os>("os");
        // The old name of the account.
        let old_account = fields.string("serviceAccount");
        let account = fields.string("serviceAccountName");
        Self {
            volumes: fields.list("volumes"),
            init_containers: fields.list("initContainers"),
            containers: fields.list("containers"),
            ephemeral_containers: fields.list("ephemeralContainers"),
            restart_policy: fields.word("restartPolicy"),
            termination_grace_period_seconds: fields.long("terminationGracePeriodSeconds"),
            active_deadline_seconds: fields.long("activeDeadlineSeconds"),
            dns_policy: fields.word("dnsPolicy"),
            dns_config: fields.object("dnsConfig"),
            service_account_name: if account.is_empty() { old_account } else { account },
            node_name: fields.string("nodeName"),
            host_network: fields.flag("hostNetwork"),
            host_pid: fields.flag("hostPID"),
            host_ipc: fields.flag("hostIPC"),
            share_process_namespace: fields.boolean("shareProcessNamespace"),
            security_context: fields.object("securityContext").unwrap_or_default(),
            image_pull_secrets: fields.list("imagePullSecrets").into_iter().map(|Named(name)| name).collect(),
            hostname: fields.string("hostname"),
            subdomain: fields.string("subdomain"),
            hostname_override: fields.text("hostnameOverride"),
            set_hostname_as_fqdn: fields.boolean("setHostnameAsFQDN"),
            host_aliases: fields.list("hostAliases"),
            priority_class_name: fields.string("priorityClassName"),
            priority: fields.int("priority"),
            runtime_class_name: fields.string("runtimeClassName"),
        }
    }
}

/// Refuses fields that Kubernetes knows and a node on its own cannot honour.
fn refuse(fields: &mut Fields<'_>) {
    fields.not_supported("automountServiceAccountToken", "tokens of service accounts come from an API server");
    fields.not_supported("readinessGates", "nobody but an API server's clients could open them");
    fields.not_supported("resourceClaims", "devices are not allocated dynamically on this node");
    fields.not_supported("resources", "resources of a pod as a whole are not limited; set them on its containers");
    fields.not_supported("schedulingGates", "nobody but an API server's clients could open them");
    fields.not_supported("workloadRef", "pods of this node belong to no workload");
    fields.not_supported("schedulingGroup", "pods of this node belong to no workload");
    if fields.boolean("hostUsers") == Some(false) {
        let path = fields.path().child("hostUsers");
        fields.errors().not_supported(path, "user namespaces are not made on this node");
    }
}

impl Read for DnsConfig {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            nameservers: fields.texts("nameservers"),
            searches: fields.texts("searches"),
            options: fields.list("options"),
        }
    }
}

impl Read for DnsOption {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.string("name"), value: fields.text("value") }
    }
}

impl Read for HostAlias {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { ip: fields.string("ip"), hostnames: fields.texts("hostnames") }
    }
}
