//! Settings of the pods that `imagelet run` keeps: their sources, the resources that the node gives them, and their logs. Names, units and
//! defaults are KubeletConfiguration's where it has them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::flag::Empty::{Shown, Unset};
use crate::config::flag::Group::{Advanced, Pods as Group};
use crate::config::flag::flag;
use crate::config::form::{Amount, As, Check, Checked, Count, Form, List, Maybe, SECOND, Span};

/// Default directory of manifests of `imagelet run`.
pub(crate) const DEFAULT_MANIFESTS: &str = "/etc/imagelet/manifests";

/// Pods that this node keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Pods {
    /// `None`: no directory.
    #[serde(rename = "staticPodPath")]
    #[schemars(
        description = "Directory of pod manifests, or one manifest, that `run` keeps running; empty: none. `run --manifests DIR` does \
                       the same and may be given again",
        extend("imagelet" = flag(Group, "pod-manifest-path").value("PATH").empty(Shown).kubelet())
    )]
    pub(crate) manifests: Option<PathBuf>,
    /// `None`: no address.
    #[serde(rename = "staticPodURL", with = "As::<Maybe<Checked<Url>>>")]
    #[schemars(
        description = "Address from which `run` takes pods, as one manifest or a PodList [default: none]",
        extend("imagelet" = flag(Group, "manifest-url").value("URL").allowed("an address such as https://config.example/pods")
            .empty(Unset).kubelet())
    )]
    pub(crate) url: Option<String>,
    #[serde(rename = "documentsDirectory")]
    #[schemars(
        description = "Directory of ConfigMap and Secret manifests (*.yaml, *.yml, *.json) for the variables and volumes of pods \
                       [default: none]",
        extend("imagelet" = flag(Group, "documents-dir").value("DIR"))
    )]
    pub(crate) documents: Option<PathBuf>,
    /// `None`: the host name.
    #[serde(rename = "nodeName", with = "As::<Maybe<Checked<NodeName>>>")]
    #[schemars(
        description = "Name of this node, the suffix of the names of pods [default: the host name in lower case]",
        extend("imagelet" = flag(Group, "node-name").value("NAME").allowed("a name of lower case letters, digits, `-` and `.`"))
    )]
    pub(crate) node_name: Option<String>,
    /// Empty: the addresses of the machine.
    #[serde(rename = "nodeIP", with = "As::<NodeIps>")]
    #[schemars(
        description = "Addresses of this node, the primary one first [default: the first address that is not a loopback one]",
        extend("imagelet" = flag(Group, "node-ip").value("IP").allowed("a list of IP addresses of this node"))
    )]
    pub(crate) node_ips: Vec<IpAddr>,
    #[serde(rename = "clusterDNS", with = "As::<List<IpAddr>>")]
    #[schemars(
        description = "Name servers of pods with the DNS policy ClusterFirst; without any they use the node's [default: none]",
        extend("imagelet" = flag(Group, "cluster-dns").value("IP").allowed("a list of IP addresses").kubelet())
    )]
    pub(crate) cluster_dns: Vec<IpAddr>,
    #[serde(rename = "clusterDomain")]
    #[schemars(
        description = "Cluster domain of those name servers [default: none]",
        extend("imagelet" = flag(Group, "cluster-domain").value("DOMAIN").allowed("a domain").kubelet())
    )]
    pub(crate) cluster_domain: String,
    #[serde(rename = "resolvConf")]
    #[schemars(
        description = "The node's resolver file; empty: none",
        extend("imagelet" = flag(Group, "resolv-conf").value("PATH").empty(Shown).kubelet_with_zero())
    )]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Empty: the runtime's choice.
    #[serde(rename = "podCgroup")]
    #[schemars(
        description = "Parent cgroup of pods: a path such as /pods, or for a runtime with systemd's driver a slice such as pods.slice \
                       [default: the runtime's choice]",
        extend("imagelet" = flag(Advanced, "pod-cgroup").value("CGROUP").allowed("a path or the name of a slice"))
    )]
    pub(crate) cgroup: String,
    #[serde(rename = "seccompDefault")]
    #[schemars(
        description = "Whether containers without a seccomp profile get the runtime's default profile, instead of none",
        extend("imagelet" = flag(Group, "seccomp-default").kubelet_with_zero())
    )]
    pub(crate) seccomp_default: bool,
    #[serde(rename = "crashLoopBackOff.maxContainerRestartPeriod", with = "As::<Span<SECOND, { 300 * SECOND }>>")]
    #[schemars(
        description = "Longest delay before a container that keeps ending is restarted",
        extend("imagelet" = flag(Group, "max-container-restart-period").kubelet())
    )]
    pub(crate) longest_restart_delay: Duration,
    #[serde(rename = "containerLogMaxSize", with = "As::<Amount<4096, { 1 << 40 }>>")]
    #[schemars(
        description = "Size from which the log of a container is rotated",
        extend("imagelet" = flag(Group, "container-log-max-size").kubelet())
    )]
    pub(crate) log_size: u64,
    #[serde(rename = "containerLogMaxFiles", with = "As::<Count<usize, 2, 1000>>")]
    #[schemars(
        description = "Largest number of files of a container's log",
        extend("imagelet" = flag(Group, "container-log-max-files").kubelet())
    )]
    pub(crate) log_files: usize,
}

impl Default for Pods {
    fn default() -> Self {
        Self {
            manifests: Some(DEFAULT_MANIFESTS.into()),
            url: None,
            documents: None,
            node_name: None,
            node_ips: Vec::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            cgroup: String::new(),
            seccomp_default: false,
            longest_restart_delay: Duration::from_secs(300),
            log_size: 10 << 20,
            log_files: 5,
        }
    }
}

impl Pods {
    /// Returns the name of the node: as configured, otherwise the host name.
    pub(crate) fn node_name(&self) -> String {
        self.node_name.clone().unwrap_or_else(agent::node::machine::host_name)
    }
}

/// Addresses of a node. As in the kubelet, unspecified, multicast and link-local addresses are refused; loopback is allowed, for trying out
/// a node on one machine.
struct NodeIps;

impl Form for NodeIps {
    type Of = Vec<IpAddr>;

    fn read(value: Value) -> Result<Vec<IpAddr>, String> {
        let ips = List::read(value)?;
        let refused = ips.iter().find_map(|ip| Some(format!("not {ip}, which is {}", fault(*ip)?)));
        refused.map_or(Ok(ips), Err)
    }

    fn write(value: &Vec<IpAddr>) -> Value {
        List::write(value)
    }

    fn schema() -> Value {
        List::<IpAddr>::schema()
    }
}

/// Returns why an address cannot be a node's.
fn fault(ip: IpAddr) -> Option<&'static str> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    match ip {
        ip if ip.is_unspecified() => Some("unspecified"),
        ip if ip.is_multicast() => Some("multicast"),
        _ if link_local => Some("link-local"),
        _ => None,
    }
}

/// The address of a manifest.
struct Url;

impl Check for Url {
    fn check(text: &str) -> Result<(), String> {
        let url = url::Url::parse(text).map_err(|error| error.to_string())?;
        match url.scheme() {
            "http" | "https" => Ok(()),
            other => Err(format!("{other} is no scheme for it")),
        }
    }
}

/// A name that may follow the name of a pod.
struct NodeName;

impl Check for NodeName {
    fn check(text: &str) -> Result<(), String> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let inner = text.chars().all(|c| letters(c) || c == '-' || c == '.');
        let ends = text.starts_with(letters) && text.ends_with(letters);
        if !inner || !ends {
            return Err("it is no name of a host in lower case".to_owned());
        }
        if text.len() > 253 { Err("it is too long".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // upstream: nodestatus/TestNodeAddress_NoCloudProvider/Single --node-ip
    // upstream: nodestatus/TestNodeAddress_NoCloudProvider/Dual --node-ips
    #[test]
    fn an_address_of_a_node_is_one_that_others_can_reach() {
        for (name, text, want) in [
            ("upstream: nodestatus/TestValidateNodeIPParam/multicast IPv4 address", "224.0.0.1", Some("multicast")),
            ("upstream: nodestatus/TestValidateNodeIPParam/multicast IPv6 address", "ff00::", Some("multicast")),
            (
                "upstream: nodestatus/TestValidateNodeIPParam/IPv4 link-local unicast address",
                "169.254.0.1",
                Some("link-local"),
            ),
            (
                "upstream: nodestatus/TestValidateNodeIPParam/IPv6 link-local unicast address",
                "fe80::1",
                Some("link-local"),
            ),
            ("upstream: nodestatus/TestValidateNodeIPParam/Unspecified IPv4 address", "0.0.0.0", Some("unspecified")),
            ("upstream: nodestatus/TestValidateNodeIPParam/Unspecified IPv6 address", "::", Some("unspecified")),
            ("upstream: nodestatus/TestValidateNodeIPParam/Success test case for address", "192.0.2.7", None),
            ("two families", "192.0.2.7,2001:db8::7", None),
            ("one machine", "127.0.0.1", None),
            (
                "upstream: nodestatus/TestNodeAddress_NoCloudProvider/Dual --node-ips but with invalid secondary IP (using multicast IP)",
                "192.0.2.7,224.0.0.1",
                Some("224.0.0.1, which is multicast"),
            ),
            ("no address", "edge", Some("invalid IP address syntax")),
        ] {
            let texts: Value = text.split(',').collect();
            match (NodeIps::read(texts), want) {
                (Ok(ips), None) => assert_eq!(ips.len(), text.split(',').count(), "{name}"),
                (Err(why), Some(want)) => assert!(why.contains(want), "{name}: {why}"),
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
    }
}
