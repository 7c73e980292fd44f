//! [`dns_config`]: the DNS configuration of a pod, from its policy, its own configuration, the node's resolver file and
//! the cluster's name servers where there are any. Pure; see [`super`].

use cri_api::DnsConfig;

use crate::pod::{DnsPolicy, Pod, PodDNSConfig};

/// Most name servers that a resolver file can hold.
const SERVERS: usize = 3;
const SEARCHES: usize = 32;

/// Name servers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDns {
    /// Addresses; none: there is no cluster.
    pub servers: Vec<String>,
    /// Domain; may be empty.
    pub domain: String,
}

/// Returns the DNS configuration of a pod. `node` is the configuration in the node's own resolver file.
#[must_use]
pub(crate) fn dns_config(pod: &Pod, node: &DnsConfig, cluster: &ClusterDns) -> DnsConfig {
    let spec = &pod.spec;
    let asks_cluster = match spec.dns_policy.unwrap_or(DnsPolicy::ClusterFirst) {
        DnsPolicy::ClusterFirst => !spec.host_network,
        DnsPolicy::ClusterFirstWithHostNet => true,
        DnsPolicy::Default | DnsPolicy::None => false,
    };
    let mut dns = match spec.dns_policy {
        Some(DnsPolicy::None) => DnsConfig::default(),
        // Without a cluster there are no name servers but the node's.
        _ if !asks_cluster || cluster.servers.is_empty() => node.clone(),
        _ => {
            let mut searches = Vec::new();
            if !cluster.domain.is_empty() {
                let domain = &cluster.domain;
                searches =
                    vec![format!("{}.svc.{domain}", pod.metadata.namespace), format!("svc.{domain}"), domain.clone()];
            }
            add(&mut searches, &node.searches);
            DnsConfig { servers: cluster.servers.clone(), searches, options: vec!["ndots:5".to_owned()] }
        }
    };
    if let Some(own) = &spec.dns_config {
        append(&mut dns, own);
    }
    dns.servers.truncate(SERVERS);
    dns.searches.truncate(SEARCHES);
    dns
}

/// Appends the pod's own settings. Its options replace options of the same name.
fn append(dns: &mut DnsConfig, own: &PodDNSConfig) {
    add(&mut dns.servers, own.nameservers.as_deref().unwrap_or_default());
    add(&mut dns.searches, own.searches.as_deref().unwrap_or_default());
    for option in own.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        dns.options.retain(|known| known.split(':').next() != Some(name));
        dns.options.push(match option.value.as_deref() {
            None | Some("") => name.to_owned(),
            Some(value) => format!("{name}:{value}"),
        });
    }
}

fn add(list: &mut Vec<String>, more: &[String]) {
    for text in more {
        if !list.contains(text) {
            list.push(text.clone());
        }
    }
}
