//! [`StatusInput`]: everything from which the status of a pod is made.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::api::{PodStatus, Waiting};
use crate::actions::ProbeResults;
use crate::observed::ObservedPod;
use crate::pod::Pod;

/// Everything from which a status is made.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The pod as it should be.
    pub pod: &'a Pod,
    /// The pod as the runtime shows it.
    pub observed: &'a ObservedPod,
    /// Last results of the probes, by container id.
    pub probes: &'a ProbeResults,
    /// Reasons of the last failed starts, by container. A successful start removes its
    /// entry.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// The end of the pod as a whole, if it was ended.
    pub ended: Option<&'a PodEnd>,
    /// Addresses of the node.
    pub host_ips: &'a [String],
    /// Name of the runtime, which stands in front of ids of containers.
    pub runtime_name: &'a str,
    /// The status before this one.
    pub previous: Option<&'a PodStatus>,
    /// The present time: that of conditions that change.
    pub now: Timestamp,
}

/// Reason for which a pod as a whole was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEnd {
    /// Reason in one word: `DeadlineExceeded`, `Evicted`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl PodEnd {
    /// Returns the end of a pod that exceeded its deadline, or `None` if it has not.
    #[must_use]
    pub fn deadline(pod: &Pod, start_time: Timestamp, now: Timestamp) -> Option<Self> {
        let deadline = pod.spec.active_deadline_seconds?;
        let ran = now.as_second().saturating_sub(start_time.as_second());
        (ran >= deadline).then(|| Self {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
        })
    }
}

impl StatusInput<'_> {
    /// Returns true if any normal container was started in this sandbox, so that all init containers had been done.
    pub(super) fn has_begun(&self) -> bool {
        self.pod.spec.containers.iter().any(|container| self.observed.latest_in_sandbox(&container.name).is_some())
    }
}
