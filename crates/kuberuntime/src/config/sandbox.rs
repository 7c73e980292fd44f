//! [`sandbox_config`]: what a pod's sandbox is made from, with its host name and the places of its logs. Pure; see
//! [`super`].

use std::collections::BTreeMap;

use cri_api::{DnsConfig, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol};

use super::security;
use crate::labels::{PodOwner, sandbox_annotations, sandbox_labels};
use crate::pod::{self, Container, Pod, Sysctl};

/// The most bytes that the kernel keeps of a host name.
const LONGEST_HOSTNAME: usize = 64;
/// The most bytes of a part of a name.
const LONGEST_LABEL: usize = 63;

/// Everything that the node adds to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SandboxInput {
    /// The number of the sandbox.
    pub attempt: u32,
    /// DNS configuration of the pod: see [`super::dns_config`].
    pub dns: DnsConfig,
    /// Host name of the pod.
    pub hostname: String,
    pub log_directory: String,
    /// The cgroup in which its own lies; empty: the runtime's choice.
    pub cgroup_parent: String,
}

/// Name of a pod on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodHostname {
    /// The first label of the name, or the whole name with `setHostnameAsFQDN`.
    pub hostname: String,
    /// Domain behind the host name; may be empty.
    pub domain: String,
}

/// A pod's full name does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({LONGEST_HOSTNAME} characters is the max, {} characters requested)", .fqdn.len())]
pub(crate) struct HostnameError {
    pub fqdn: String,
}

/// Name of a pod on the network. `cluster_domain` is empty where there is no cluster: a subdomain then stands for
/// itself.
///
/// # Errors
/// The pod wants its full name as its host name, and that is too long.
pub(crate) fn pod_hostname(pod: &Pod, cluster_domain: &str) -> Result<PodHostname, HostnameError> {
    let spec = &pod.spec;
    if let Some(hostname) = &spec.hostname_override {
        return Ok(PodHostname { hostname: hostname.clone(), domain: String::new() });
    }
    let hostname = if spec.hostname.is_empty() { shortened(&pod.metadata.name) } else { spec.hostname.clone() };
    let domain = match (spec.subdomain.as_str(), cluster_domain) {
        ("", _) => String::new(),
        (subdomain, "") => subdomain.to_owned(),
        (subdomain, cluster) => format!("{subdomain}.{}.svc.{cluster}", pod.metadata.namespace),
    };
    if spec.set_hostname_as_fqdn != Some(true) || domain.is_empty() {
        return Ok(PodHostname { hostname, domain });
    }
    let fqdn = format!("{hostname}.{domain}");
    if fqdn.len() > LONGEST_HOSTNAME { Err(HostnameError { fqdn }) } else { Ok(PodHostname { hostname: fqdn, domain }) }
}

/// Cuts a name that is too long for a host name, without invalid characters at its end.
fn shortened(name: &str) -> String {
    let cut = name.get(..LONGEST_LABEL).unwrap_or(name);
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// Returns the directory of a pod's logs below `root`.
#[must_use]
pub(crate) fn pod_log_directory(root: &str, pod: &Pod) -> String {
    format!("{}/{}", root.trim_end_matches('/'), pod_log_directory_name(&PodOwner::of(pod)))
}

/// Name of the directory of a pod's logs, in the directory of all logs.
#[must_use]
pub(crate) fn pod_log_directory_name(pod: &PodOwner) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

/// Returns the path of a container's log below its pod's log directory.
#[must_use]
pub(crate) fn container_log_path(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// Config of a pod's sandbox for CRI.
#[must_use]
pub(crate) fn sandbox_config(pod: &Pod, input: SandboxInput) -> PodSandboxConfig {
    let (metadata, spec) = (&pod.metadata, &pod.spec);
    PodSandboxConfig {
        metadata: PodSandboxMetadata {
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            namespace: metadata.namespace.clone(),
            attempt: input.attempt,
        },
        // With the node's network it has the node's name.
        hostname: if spec.host_network { String::new() } else { input.hostname },
        log_directory: input.log_directory,
        dns: input.dns,
        port_mappings: if spec.host_network { Vec::new() } else { port_mappings(pod) },
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(pod),
        linux: LinuxPodSandboxConfig {
            cgroup_parent: input.cgroup_parent,
            security: security::of_sandbox(pod),
            sysctls: sysctls(spec.security_context.sysctls.as_deref().unwrap_or_default()),
            ..LinuxPodSandboxConfig::default()
        },
    }
}

/// Returns the host ports of the pod: those of its containers and sidecars.
fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let of = |container: &Container| container.ports.iter().filter_map(mapping).collect::<Vec<_>>();
    pod.spec.containers.iter().chain(sidecars).flat_map(of).collect()
}

fn mapping(port: &pod::ContainerPort) -> Option<PortMapping> {
    let host_port = port.host_port.filter(|port| *port > 0)?;
    Some(PortMapping {
        protocol: match pod::Protocol::of_port(port) {
            pod::Protocol::Tcp => Protocol::Tcp,
            pod::Protocol::Udp => Protocol::Udp,
            pod::Protocol::Sctp => Protocol::Sctp,
        },
        container_port: port.container_port,
        host_port,
        host_ip: port.host_ip.clone().unwrap_or_default(),
    })
}

/// Returns the sysctls with dots between the parts of their names. A name with slashes may have dots inside of a part, which
/// become slashes.
fn sysctls(sysctls: &[Sysctl]) -> BTreeMap<String, String> {
    let dotted = |name: &str| match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    };
    sysctls.iter().map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone())).collect()
}
