//! [`PodSpec`] and what is of the pod as a whole. Read by [`super::Pod`].

use super::container::{Container, EphemeralContainer, RestartPolicy};
use super::macros::{object, words};
use super::read::{ManifestFields, ManifestObject};
use super::security::PodSecurityContext;
use super::volume::Volume;

/// The priority of pods that are evicted last.
pub(crate) const NODE_CRITICAL: i32 = 2_000_001_000;
/// The priority classes that every cluster has.
pub(crate) const PRIORITY_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", NODE_CRITICAL)];

words! {
    /// Source of a pod's name servers.
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

object! {

    /// Specification of a pod.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct PodSpec (unsupported_in_spec) {
        /// Volumes that containers may mount.
        pub volumes: Vec<Volume> = "volumes",
        /// Containers that run before the normal ones, in order, and sidecars.
        pub init_containers: Vec<Container> = "initContainers",
        /// Normal containers; at least one.
        pub containers: Vec<Container> = "containers" always,
        /// Containers for debugging, which come later.
        pub ephemeral_containers: Vec<EphemeralContainer> = "ephemeralContainers",
        /// Treatment of containers that have ended; `Always` by default.
        pub restart_policy: Option<RestartPolicy> = "restartPolicy",
        /// How long containers may take to end.
        pub termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        /// How long the pod may run at all.
        pub active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        /// Source of the pod's name servers.
        pub dns_policy: Option<DnsPolicy> = "dnsPolicy",
        /// Additions to that source.
        pub dns_config: Option<DnsConfig> = "dnsConfig",
        /// The account under which it runs.
        pub service_account_name: String = with service_account,
        /// The node it is meant for.
        pub node_name: String = "nodeName",
        /// True if the pod has the node's network.
        pub host_network: bool = "hostNetwork",
        /// True if the pod sees the node's processes.
        pub host_pid: bool = "hostPID",
        /// True if the pod has the node's inter-process communication.
        pub host_ipc: bool = "hostIPC",
        /// True if the pod's containers see each other's processes.
        pub share_process_namespace: Option<bool> = "shareProcessNamespace",
        /// Rights of the pod.
        pub security_context: PodSecurityContext = "securityContext",
        /// Names of the secrets with which its images may be pulled.
        pub image_pull_secrets: Vec<String> = with pull_secrets,
        /// Host name; the pod's name unless said.
        pub hostname: String = "hostname",
        /// Subdomain behind the host name.
        pub subdomain: String = "subdomain",
        /// A host name that replaces any other.
        pub hostname_override: Option<String> = "hostnameOverride",
        /// True if the host name is the fully qualified one.
        pub set_hostname_as_fqdn: Option<bool> = "setHostnameAsFQDN",
        /// Lines for the hosts file.
        pub host_aliases: Vec<HostAlias> = "hostAliases",
        /// Priority class; only the two of the system have a value without an API server.
        pub priority_class_name: String = "priorityClassName",
        /// Priority, higher for pods that are evicted later; 0 unless said.
        pub priority: Option<i32> = "priority",
        /// Runtime handler: a runtime class means the handler of its name.
        pub runtime_class_name: String = "runtimeClassName",
    }
}

object! {
    /// Name servers of a pod's own.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DnsConfig {
        /// Addresses of name servers.
        pub nameservers: Vec<String> = "nameservers",
        /// Domains that are tried behind a name.
        pub searches: Vec<String> = "searches",
        /// Options of the resolver (resolv.conf(5)).
        pub options: Vec<DnsOption> = "options",
    }
}

object! {
    /// An option of a resolver.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DnsOption {
        /// Name of the option, for example `ndots`.
        pub name: String = "name",
        /// Value of the option; `None` for a flag.
        pub value: Option<String> = "value",
    }
}

object! {
    /// A line of the hosts file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HostAlias {
        /// IPv4 or IPv6 address.
        pub ip: String = "ip",
        /// Names of the address.
        pub hostnames: Vec<String> = "hostnames",
    }
}

impl PodSpec {
    /// The restart policy that is in force.
    #[must_use]
    pub fn restart_policy(&self) -> RestartPolicy {
        self.restart_policy.unwrap_or(RestartPolicy::Always)
    }
}

/// The operating system that a pod is for.
struct PodOs;

impl ManifestObject for PodOs {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        let path = fields.path().child("name");
        match fields.get::<String>("name").unwrap_or_default().as_str() {
            "linux" => {}
            "" => fields.errors().required(path, ""),
            "windows" => fields.errors().not_supported(path, "this node runs Linux"),
            other => fields.errors().unsupported(path, other, &["linux", "windows"]),
        }
        Self
    }

    fn write(&self, _object: &mut serde_json::Map<String, serde_json::Value>) {}
}

/// Ignores and refuses fields.
fn unsupported_in_spec(fields: &mut ManifestFields<'_>) {
    // The placement of the pod and its cost there are decided already; on one node these fields mean nothing.
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
    fields.not_supported("automountServiceAccountToken", "tokens of service accounts come from an API server");
    fields.not_supported("readinessGates", "nobody but an API server's clients could open them");
    fields.not_supported("resourceClaims", "devices are not allocated dynamically on this node");
    fields.not_supported("resources", "resources of a pod as a whole are not limited; set them on its containers");
    fields.not_supported("schedulingGates", "nobody but an API server's clients could open them");
    fields.not_supported("workloadRef", "pods of this node belong to no workload");
    fields.not_supported("schedulingGroup", "pods of this node belong to no workload");
    if fields.get("hostUsers") == Some(false) {
        let path = fields.path().child("hostUsers");
        fields.errors().not_supported(path, "user namespaces are not made on this node");
    }
    fields.get::<PodOs>("os");
}

/// The name of the service account, also under its old name.
mod service_account {
    use crate::pod::read::{ManifestField, ManifestFields};

    pub(super) fn read(fields: &mut ManifestFields<'_>) -> String {
        let old = fields.get("serviceAccount").unwrap_or_default();
        fields.get("serviceAccountName").filter(|name: &String| !name.is_empty()).unwrap_or(old)
    }

    pub(super) fn write(name: &String, object: &mut serde_json::Map<String, serde_json::Value>) {
        name.write("serviceAccountName", object);
    }
}

/// Names of secrets, each in an object of its own.
mod pull_secrets {
    use crate::pod::macros::object;
    use crate::pod::read::{ManifestField, ManifestFields};

    object! {
        #[derive(PartialEq)]
        struct LocalObjectReference {
            name: String = "name" always,
        }
    }

    pub(super) fn read(fields: &mut ManifestFields<'_>) -> Vec<String> {
        let references: Vec<LocalObjectReference> = ManifestField::read(fields, "imagePullSecrets");
        references.into_iter().map(|reference| reference.name).collect()
    }

    pub(super) fn write(names: &[String], object: &mut serde_json::Map<String, serde_json::Value>) {
        let references = names.iter().map(|name| LocalObjectReference { name: name.clone() });
        references.collect::<Vec<_>>().write("imagePullSecrets", object);
    }
}
