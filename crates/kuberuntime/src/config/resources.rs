//! Limits of a container, in the numbers of cgroups, by the kubelet's sums. Called by [`super::container_config`].

use std::collections::BTreeMap;

use cri_api::{HugepageLimit, LinuxContainerResources};
use oci::Quantity;

use crate::pod::{Container, Pod};
use crate::qos::oom_score_adj;

/// The least and the most that a weight can be.
const SHARES: std::ops::RangeInclusive<i64> = 2..=262_144;
/// The period of a quota, and the least quota, in microseconds.
const PERIOD: i64 = 100_000;
const LEAST_QUOTA: i64 = 1000;

/// Facts of the node that the sums of resources need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    /// Bytes of memory.
    pub memory: u64,
    /// True if the node has cgroups of version 2.
    pub cgroup_v2: bool,
}

/// Limits of a container for CRI.
#[must_use]
pub(crate) fn linux_resources(pod: &Pod, container: &Container, node: NodeResources) -> LinuxContainerResources {
    let (limits, requests) = (&container.resources.limits, &container.resources.requests);
    let milli = |map: &BTreeMap<String, Quantity>| map.get("cpu").map(|cpu| cpu.milli_value());
    let quota = quota(milli(limits).unwrap_or(0));
    let mut unified = BTreeMap::new();
    if node.cgroup_v2 {
        // One process of a container that runs out of memory takes all others of it along.
        unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota,
        cpu_shares: shares(milli(requests).or(milli(limits)).unwrap_or(0)),
        memory_limit_in_bytes: limits.get("memory").map_or(0, |memory| memory.value()),
        oom_score_adj: oom_score_adj(pod, container, node.memory),
        hugepage_limits: limits.iter().filter_map(|(name, amount)| huge_pages(name, *amount)).collect(),
        unified,
        ..LinuxContainerResources::default()
    }
}

/// Returns the CPU weight of an amount in thousandths of a core.
fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(*SHARES.start(), *SHARES.end())
}

/// Returns the CPU time per period of an amount in thousandths of a core; 0 for no limit.
fn quota(milli: i64) -> i64 {
    if milli <= 0 { 0 } else { (milli.saturating_mul(PERIOD) / 1000).max(LEAST_QUOTA) }
}

/// `hugepages-2Mi`, with the size as the kernel's files name it.
fn huge_pages(name: &str, amount: Quantity) -> Option<HugepageLimit> {
    let mut size = crate::validate::page_size(name.strip_prefix("hugepages-")?)?.value();
    let mut unit = 0;
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    while size >= 1024 && size % 1024 == 0 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    Some(HugepageLimit {
        page_size: format!("{size}{}", UNITS[unit]),
        limit: u64::try_from(amount.value()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_kubelet() {
        let weights = [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (1500, 1536), (i64::MAX, 262_144)];
        for (milli, want) in weights {
            assert_eq!(shares(milli), want, "{milli}");
        }
        for (milli, want) in [(0, 0), (1, 1000), (10, 1000), (11, 1100), (200, 20_000), (1500, 150_000)] {
            assert_eq!(quota(milli), want, "{milli}");
        }
        let page = |name: &str| huge_pages(name, Quantity::bytes(4 << 20)).map(|limit| (limit.page_size, limit.limit));
        assert_eq!(page("hugepages-2Mi"), Some(("2MB".to_owned(), 4 << 20)));
        assert_eq!(page("hugepages-1Gi"), Some(("1GB".to_owned(), 4 << 20)));
        assert_eq!((page("hugepages-x"), page("memory")), (None, None));
    }
}
