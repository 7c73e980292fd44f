//! The machine as its pods see it: name, addresses, memory, name servers. Read from files of the system; everything that has a form
//! is read by pure functions. Blocks for as long as small files take. Called by the binary, once, at the start of a node.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};

use cri_api::DnsConfig;

/// The file in which systemd-resolved lists its upstream servers. The usual file names only the local stub, which no pod reaches.
const REAL_RESOLVER_FILE: &str = "/run/systemd/resolve/resolv.conf";

/// Returns the host name in lower case, as in names of pods.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}

/// Bytes of memory; 0 where that is not known.
pub fn memory_bytes() -> u64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)).unwrap_or_default()
}

/// Directory of the links to container logs that log collectors know. It is next to the logs of pods, as `/var/log/containers` is
/// next to `/var/log/pods` for the kubelet.
pub fn container_links(pod_logs: &Path) -> Option<PathBuf> {
    pod_logs.parent().map(|directory| directory.join("containers"))
}

/// Returns the addresses by which other machines reach this node: the source addresses of its default routes, otherwise any that is
/// not a loopback address, otherwise a loopback address.
pub fn addresses() -> Vec<IpAddr> {
    // Nothing is sent: the system only selects a route. The addresses are reserved for documentation.
    let source_address = |any: &str, target: &str| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((target, 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    let chosen = [source_address("0.0.0.0", "192.0.2.1"), source_address("::", "2001:db8::1")];
    let mut found: Vec<IpAddr> = chosen.into_iter().flatten().filter(|ip| is_good(*ip)).collect();
    if found.is_empty() {
        let table = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        found.extend(local_addresses(&table).into_iter().map(IpAddr::V4).next());
    }
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    found
}

fn is_good(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}

/// Returns the addresses of this machine in the kernel's table of routes, without loopback ones.
fn local_addresses(table: &str) -> Vec<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last = None;
    for line in table.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last.filter(|ip| is_good((*ip).into())));
        }
    }
    found.into_iter().collect()
}

/// Bytes of memory in `/proc/meminfo`.
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Reads the node's resolver file. With `chosen`, the user has named it, so it is used as it is.
pub fn resolver(path: &Path, chosen: bool) -> DnsConfig {
    let text = fs::read_to_string(path).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "no name servers for pods that use those of the node");
        String::new()
    });
    let said = resolv_conf(&text);
    if chosen || !asks_itself(&said) {
        return said;
    }
    match fs::read_to_string(REAL_RESOLVER_FILE) {
        Ok(text) => {
            tracing::info!(
                path = %path.display(), used = REAL_RESOLVER_FILE,
                "the resolver file names only this machine, which no pod reaches: another file is used, or that of --resolv-conf"
            );
            resolv_conf(&text)
        }
        Err(_) => said,
    }
}

fn asks_itself(dns: &DnsConfig) -> bool {
    let local = |server: &String| server.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !dns.servers.is_empty() && dns.servers.iter().all(local)
}

/// Parses a resolver file: every name server and option, and the last list of domains.
fn resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                let domain =
                    |word: &str| if word == "." { word.to_owned() } else { word.trim_end_matches('.').to_owned() };
                dns.searches = words.map(domain).collect();
            }
            Some("options") => dns.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        assert_eq!(memory("MemTotal:        8000 kB\nMemFree: 1 kB\n"), Some(8_192_000));
        assert_eq!((memory("MemFree: 1 kB\n"), memory("MemTotal: x kB\n")), (None, None));
        let text = "# made by hand\nnameserver 192.0.2.1 ; the first\nnameserver ::1\nsearch old.example\n\
                    search a.example. . b.example\noptions ndots:2 rotate\noptions edns0\nnameserver\ndomain x\n";
        let dns = resolv_conf(text);
        assert_eq!(dns.servers, ["192.0.2.1", "::1"]);
        assert_eq!(dns.searches, ["a.example", ".", "b.example"]);
        assert_eq!(dns.options, ["ndots:2", "rotate", "edns0"]);
        assert!(!asks_itself(&dns) && !asks_itself(&DnsConfig::default()));
        assert!(asks_itself(&resolv_conf("nameserver 127.0.0.53\n")));
    }

    #[test]
    fn the_machine_has_memory_and_an_address() {
        assert!(memory_bytes() > 1 << 20 && !addresses().is_empty());
    }

    #[test]
    fn addresses_of_others_are_not_ours() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n\
                     \x20       |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.7\n           /32 host LOCAL\n\
                     \x20       |-- 10.0.0.255\n           /32 link BROADCAST\nLocal:\n        |-- 127.0.0.1\n           \
                     /32 host LOCAL\n        |-- 169.254.1.1\n           /32 host LOCAL\n        |-- 10.0.0.7\n           \
                     /32 host LOCAL\n";
        assert_eq!(local_addresses(table), [Ipv4Addr::new(10, 0, 0, 7)]);
        assert_eq!(local_addresses(""), [] as [Ipv4Addr; 0]);
    }
}
