//! The hosts file of a pod. Pure text; see [`super`].

use std::fmt::Write as _;

use super::sandbox::PodHostname;
use crate::pod::{HostAlias, Pod};

/// The first line of a file that was made for a pod.
const HEAD: &str = "# Kubernetes-managed hosts file.\n";
/// The first line of one that is the node's, with more.
const HEAD_OF_NODE: &str = "# Kubernetes-managed hosts file (host network).\n";
/// Lines of every hosts file.
const LOCAL: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// Returns the hosts file of a pod with a network of its own.
#[must_use]
pub(crate) fn hosts_file(pod: &Pod, ips: &[String], name: &PodHostname) -> String {
    let mut text = format!("{HEAD}{LOCAL}");
    for ip in ips {
        let _ = match name.domain.as_str() {
            "" => writeln!(text, "{ip}\t{}", name.hostname),
            // The host name may be the full one already.
            domain if name.hostname.ends_with(&format!(".{domain}")) => writeln!(text, "{ip}\t{}", name.hostname),
            domain => writeln!(text, "{ip}\t{host}.{domain}\t{host}", host = name.hostname),
        };
    }
    aliases(&mut text, &pod.spec.host_aliases);
    text
}

/// Returns the hosts file of a pod with the node's network: that of the node, followed by the pod's aliases.
#[must_use]
pub(crate) fn managed_hosts_file(pod: &Pod, of_node: &str) -> String {
    let mut text = format!("{HEAD_OF_NODE}{of_node}");
    aliases(&mut text, &pod.spec.host_aliases);
    text
}

fn aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{}\t{}", alias.ip, names.join("\t"));
    }
}
