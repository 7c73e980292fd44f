//! Settings of the pods that `imagelet run` keeps: their sources, the resources that the node gives them, and their logs. Names, units and
//! defaults are KubeletConfiguration's where it has them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use oci::Secret;
use serde_json::json;

use crate::config::declare::settings;
use crate::config::kind::{
    Kind, boolean, count, duration, headers, list, parsed, path, path_or_empty, quantity, text, unset,
};
use crate::config::value::{Raw, Wrong};

/// Default directory of manifests of `imagelet run`.
pub(crate) const DEFAULT_MANIFESTS: &str = "/etc/imagelet/manifests";

/// Longest time between two turns of a loop.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Shortest time between two turns of a cheap loop.
const OFTEN: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

settings! {
    /// Pods that this node keeps.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Pods() {
        Pods {
            /// `None`: no directory.
            manifests: Option<PathBuf> = Some(DEFAULT_MANIFESTS.into()) =>
                "staticPodPath", "pod-manifest-path", path_or_empty("PATH"),
                "Directory of pod manifests, or one manifest, that `run` keeps running; empty: none. `run \
                 --manifests DIR` does the same and may be given again", kubelet();
            /// `None`: no address.
            url: Option<String> = None =>
                "staticPodURL", "manifest-url", parsed("URL", "an address such as https://config.example/pods", url, |url| json!(url.as_deref().map(without_secrets))),
                "Address from which `run` takes pods, as one manifest or a PodList [default: none]", kubelet();
            headers: Vec<(String, Secret)> = Vec::new() =>
                "staticPodURLHeader", "manifest-url-header", headers(),
                "Headers that are sent to staticPodURL; may be given again. Their values are never shown \
                 [default: none]", kubelet();
            documents: Option<PathBuf> = None =>
                "documentsDirectory", "documents-dir", unset(path("DIR")),
                "Directory of ConfigMap and Secret manifests (*.yaml, *.yml, *.json) for the variables and \
                 volumes of pods [default: none]";
            /// `None`: the host name.
            node_name: Option<String> = None =>
                "nodeName", "node-name", unset(parsed(
                    "NAME",
                    "a name of lower case letters, digits, `-` and `.`",
                    node_name,
                    |name| json!(name),
                )),
                "Name of this node, the suffix of the names of pods [default: the host name in lower case]";
            /// Empty: the addresses of the machine.
            node_ips: Vec<IpAddr> = Vec::new() =>
                "nodeIP", "node-ip", node_ips(),
                "Addresses of this node, the primary one first [default: the first address that is not a \
                 loopback one]";
            cluster_dns: Vec<IpAddr> = Vec::new() =>
                "clusterDNS", "cluster-dns", list("IP", "a list of IP addresses"),
                "Name servers of pods with the DNS policy ClusterFirst; without any they use the node's [default: none]", kubelet();
            cluster_domain: String = String::new() =>
                "clusterDomain", "cluster-domain", text("DOMAIN", "a domain"),
                "Cluster domain of those name servers [default: none]", kubelet();
            resolv_conf: Option<PathBuf> = Some("/etc/resolv.conf".into()) =>
                "resolvConf", "resolv-conf", path_or_empty("PATH"),
                "The node's resolver file; empty: none", kubelet_with_zero();
            /// Empty: the runtime's choice.
            cgroup: String = String::new() =>
                "podCgroup", "pod-cgroup", text("CGROUP", "a path or the name of a slice"),
                "Parent cgroup of pods: a path such as /pods, or for a runtime with systemd's driver a slice \
                 such as pods.slice [default: the runtime's choice]";
            seccomp_default: bool = false =>
                "seccompDefault", "seccomp-default", boolean(),
                "Whether containers without a seccomp profile get the runtime's default profile, instead of \
                 none", kubelet_with_zero();
            longest_restart_delay: Duration = Duration::from_secs(300) =>
                "crashLoopBackOff.maxContainerRestartPeriod", "max-container-restart-period", duration(SECOND..=Duration::from_secs(300)),
                "Longest delay before a container that keeps ending is restarted", kubelet();
            log_size: u64 = 10 << 20 =>
                "containerLogMaxSize", "container-log-max-size", quantity(4096..=1 << 40),
                "Size from which the log of a container is rotated", kubelet();
            log_files: usize = 5 =>
                "containerLogMaxFiles", "container-log-max-files", count(2..=1000),
                "Largest number of files of a container's log", kubelet();
            log_period: Duration = Duration::from_secs(10) =>
                "containerLogMonitorInterval", "container-log-monitor-interval", duration(OFTEN..=DAY),
                "How often the sizes of logs are checked", kubelet();
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
fn node_ips() -> Kind<Vec<IpAddr>> {
    let any: Kind<Vec<IpAddr>> = list("IP", "a list of IP addresses");
    let read = any.read;
    let checked = move |raw: Raw<'_>| {
        let ips = read(raw)?;
        let refused =
            ips.iter().find_map(|ip| Some(format!("addresses of this node, not {ip}, which is {}", fault(*ip)?)));
        refused.map_or(Ok(ips), |why| Err(Wrong(why)))
    };
    Kind { read: Box::new(checked), ..any }
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

fn url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(Some(text.to_owned())),
        other => Err(format!("{other} is no scheme for it")),
    }
}

/// Returns the address with `xxxxx` in place of a password, as Go shows it, and of a query, which may contain a token.
fn without_secrets(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return text.to_owned() };
    if url.password().is_none() && url.query().is_none() {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some("xxxxx")).is_err() {
        return String::new();
    }
    if url.query().is_some() {
        url.set_query(Some("xxxxx"));
    }
    url.into()
}

/// Validates a name that may follow the name of a pod.
fn node_name(text: &str) -> Result<String, String> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = text.chars().all(|c| letters(c) || c == '-' || c == '.');
    let ends = text.starts_with(letters) && text.ends_with(letters);
    if !inner || !ends {
        return Err("it is no name of a host in lower case".to_owned());
    }
    if text.len() > 253 { Err("it is too long".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (text, want) in [
            ("https://config.example/pods", "https://config.example/pods"),
            ("https://me:secret@config.example/pods", "https://me:xxxxx@config.example/pods"),
            ("https://config.example/pods?token=secret&node=edge", "https://config.example/pods?xxxxx"),
            ("https://me:secret@config.example/?secret", "https://me:xxxxx@config.example/?xxxxx"),
        ] {
            assert_eq!(without_secrets(text), want);
        }
    }

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
            ("no address", "edge", Some("a list of IP addresses")),
        ] {
            match ((node_ips().read)(Raw::Text(text)), want) {
                (Ok(ips), None) => assert_eq!(ips.len(), text.split(',').count(), "{name}"),
                (Err(Wrong(why)), Some(want)) => assert!(why.contains(want), "{name}: {why}"),
                (other, _) => panic!("{name}: {:?}", other.map_err(|wrong| wrong.0)),
            }
        }
    }
}
