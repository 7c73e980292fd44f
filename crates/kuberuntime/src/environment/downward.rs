//! The downward API: fields and amounts of a pod for its own containers. [`PodField`] and [`ContainerAmount`] are read from their
//! texts (for validation as well) and resolved from the pod and its [`PodContext`]. Knows no volume and no variable.

use std::fmt::Write as _;

use oci::Quantity;

use crate::pod::{Container, Pod, ResourceFieldSelector, divisor};

/// A field of a pod that variables and files may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodField {
    Name,
    Namespace,
    Uid,
    Labels,
    Annotations,
    Label(String),
    Annotation(String),
    NodeName,
    ServiceAccountName,
    HostIp,
    HostIps,
    PodIp,
    PodIps,
}

/// Facts about a pod that are known only while it runs, and facts about its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodContext {
    /// Name of the node: `spec.nodeName` in the downward API.
    pub node_name: String,
    /// Addresses of the node, the first one being its own.
    pub host_ips: Vec<String>,
    /// Addresses of the pod, the first one being its own.
    pub pod_ips: Vec<String>,
    /// Cores of the node that pods may use.
    pub allocatable_cpu: Quantity,
    /// Memory of the node that pods may use.
    pub allocatable_memory: Quantity,
    /// Disk of the node that pods may use.
    pub allocatable_ephemeral_storage: Quantity,
}

/// The use of a field, on which depends whether it is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldUse {
    Variable,
    /// A file of a volume.
    File,
}

impl PodField {
    /// Parses the path of a field. Returns `None` for a field that is not available for this use.
    pub(crate) fn parse(text: &str, place: FieldUse) -> Option<Self> {
        let field = match text {
            "metadata.name" => Self::Name,
            "metadata.namespace" => Self::Namespace,
            "metadata.uid" => Self::Uid,
            "metadata.labels" if place == FieldUse::File => Self::Labels,
            "metadata.annotations" if place == FieldUse::File => Self::Annotations,
            "spec.nodeName" if place == FieldUse::Variable => Self::NodeName,
            "spec.serviceAccountName" if place == FieldUse::Variable => Self::ServiceAccountName,
            "status.hostIP" if place == FieldUse::Variable => Self::HostIp,
            "status.hostIPs" if place == FieldUse::Variable => Self::HostIps,
            "status.podIP" if place == FieldUse::Variable => Self::PodIp,
            "status.podIPs" if place == FieldUse::Variable => Self::PodIps,
            _ => {
                let key = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
                let label = key("metadata.labels['").map(Self::Label);
                return label.or_else(|| key("metadata.annotations['").map(Self::Annotation));
            }
        };
        Some(field)
    }

    /// Returns the value, which is empty if the pod does not have the field.
    pub(crate) fn value(&self, pod: &Pod, context: &PodContext) -> String {
        let metadata = &pod.metadata;
        match self {
            Self::Name => metadata.name.clone(),
            Self::Namespace => metadata.namespace.clone(),
            Self::Uid => metadata.uid.clone(),
            Self::Labels => lines(&metadata.labels),
            Self::Annotations => lines(&metadata.annotations),
            Self::Label(key) => metadata.labels.get(key).cloned().unwrap_or_default(),
            Self::Annotation(key) => metadata.annotations.get(key).cloned().unwrap_or_default(),
            Self::NodeName => context.node_name.clone(),
            Self::ServiceAccountName => pod.spec.service_account_name.clone(),
            Self::HostIp => context.host_ips.first().cloned().unwrap_or_default(),
            Self::HostIps => context.host_ips.join(","),
            Self::PodIp => context.pod_ips.first().cloned().unwrap_or_default(),
            Self::PodIps => context.pod_ips.join(","),
        }
    }
}

/// `key="value"`, one a line, with the value quoted.
fn lines(map: &std::collections::BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (index, (key, value)) in map.iter().enumerate() {
        let end = if index == 0 { "" } else { "\n" };
        let _ = write!(text, "{end}{key}={}", quoted(value));
    }
    text
}

/// Returns a text in quotes, as in the downward API.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7f => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Which of the two amounts of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceBound {
    Limit,
    Request,
}

/// An amount of a container that variables and files may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerAmount {
    side: ResourceBound,
    resource: String,
}

impl ContainerAmount {
    /// The names that there are, for complaints.
    pub(crate) const NAMES: &'static [&'static str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];

    /// Reads `limits.cpu` and the like.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (side, resource) = text.split_once('.')?;
        let side = match side {
            "limits" => ResourceBound::Limit,
            "requests" => ResourceBound::Request,
            _ => return None,
        };
        let known = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
        known.then(|| Self { side, resource: resource.to_owned() })
    }

    /// Returns true if the resource is counted in cores.
    pub(crate) fn is_cores(&self) -> bool {
        self.resource == "cpu"
    }

    /// Returns the value in units of the divisor, rounded up. A limit that is not set is that of the node.
    pub(crate) fn value(&self, container: &Container, divisor: Quantity, context: &PodContext) -> i64 {
        let resources = &container.resources;
        let node = match self.resource.as_str() {
            "cpu" => context.allocatable_cpu,
            "memory" => context.allocatable_memory,
            "ephemeral-storage" => context.allocatable_ephemeral_storage,
            _ => Quantity::ZERO,
        };
        let amount = match self.side {
            ResourceBound::Request => resources.requests.get(&self.resource).copied().unwrap_or_default(),
            ResourceBound::Limit => resources.limits.get(&self.resource).copied().unwrap_or(node),
        };
        amount.divided(divisor, self.is_cores())
    }
}

/// Amount that a resource reference stands for, of `container` or of the container that it names. `None` if there is no
/// such container or resource, which validation refuses.
pub(crate) fn amount(
    pod: &Pod,
    container: Option<&Container>,
    reference: &ResourceFieldSelector,
    context: &PodContext,
) -> Option<String> {
    let container = match reference.container_name.as_deref().unwrap_or_default() {
        "" => container?,
        name => pod.container(name)?.1,
    };
    let amount = ContainerAmount::parse(&reference.resource)?;
    Some(amount.value(container, divisor(reference), context).to_string())
}
