//! Limits of the resources of a container.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits of one container, or of a pod. Zero and empty mean unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxContainerResources {
    /// Period of the CPU quota, microseconds.
    pub cpu_period: i64,
    /// CPU time per period, microseconds; below 0: without limit.
    pub cpu_quota: i64,
    /// Weight relative to other cgroups, as cgroup v1 counts it: 1024 is one CPU.
    pub cpu_shares: i64,
    /// Bytes.
    pub memory_limit_in_bytes: i64,
    /// Bytes of memory and swap together.
    pub memory_swap_limit_in_bytes: i64,
    /// Adjustment for the out-of-memory killer, -1000 to 1000.
    pub oom_score_adj: i64,
    /// CPUs on which it may run.
    pub cpuset_cpus: String,
    /// Memory nodes that it may use.
    pub cpuset_mems: String,
    /// Limits of huge pages.
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Files of cgroup v2 with their content.
    pub unified: BTreeMap<String, String>,
}

/// Limit of huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HugepageLimit {
    /// Size as the kernel's files name it: `2MB`, `1GB`.
    pub page_size: String,
    /// Bytes.
    pub limit: u64,
}
