//! What is known of a running pod: as the runtime shows it ([`ObservedPod`]), and as Kubernetes would tell it
//! ([`PodStatus`], made by [`pod_status`]). Pure: runtime, clock and probes are asked by others. Called after each sync of
//! a pod and by whoever shows one.

pub(crate) mod api;
mod conditions;
mod containers;
mod observed;
mod phase;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::actions::ProbeResults;
use crate::pod::{ContainerKind, Pod};
use crate::qos::qos_class;
use api::{Ip, Phase, PodStatus, Waiting};
pub(crate) use containers::CONTAINER_CREATING;
pub use observed::{ObservedContainer, ObservedPod, ObservedSandbox};

/// Everything from which a status is made.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// What the pod should be.
    pub pod: &'a Pod,
    /// What the runtime shows of it.
    pub observed: &'a ObservedPod,
    /// What its probes said.
    pub probes: &'a ProbeResults,
    /// Why containers could not be started when it was last tried, by their names. A start that went well removes its
    /// entry.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Why the pod as a whole was ended, where somebody ended it.
    pub ended: Option<&'a PodEnd>,
    /// Addresses of the node.
    pub host_ips: &'a [String],
    /// Name of the runtime, which stands in front of ids of containers.
    pub runtime_name: &'a str,
    /// The status before this one.
    pub previous: Option<&'a PodStatus>,
    /// The time.
    pub now: Timestamp,
}

/// Why a pod as a whole was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEnd {
    /// In one word: `DeadlineExceeded`, `Evicted`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl PodEnd {
    /// A pod ran longer than it may; `None` while it has not.
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
    /// Whether any normal container was started in this sandbox, so that all init containers had been done.
    fn has_begun(&self) -> bool {
        self.pod.spec.containers.iter().any(|container| self.observed.latest_here(&container.name).is_some())
    }
}

/// The status of a pod. A pod that has succeeded or failed stays so.
#[must_use]
pub fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let spec = &input.pod.spec;
    let init = containers::statuses(input, ContainerKind::Init, spec.init_containers.iter());
    let normal = containers::statuses(input, ContainerKind::Normal, spec.containers.iter());
    let ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.container);
    let ephemeral = containers::statuses(input, ContainerKind::Ephemeral, ephemeral);
    let before = input.previous.map(|previous| previous.phase);
    let phase = match before {
        Some(over @ (Phase::Succeeded | Phase::Failed)) => over,
        _ if input.ended.is_some() => Phase::Failed,
        _ => phase::phase(input.pod, input.has_begun(), &init, &normal),
    };
    let told =
        input.previous.map(|previous| PodEnd { reason: previous.reason.clone(), message: previous.message.clone() });
    let PodEnd { reason, message } = input.ended.cloned().or(told).unwrap_or_default();
    // With the node's network its addresses are the pod's.
    let pod_ips = if input.pod.host_network() { input.host_ips } else { input.observed.ips() };
    let list = |ips: &[String]| ips.iter().map(|ip| Ip { ip: ip.clone() }).collect();
    PodStatus {
        phase,
        conditions: conditions::conditions(input, phase, &init, &normal),
        message,
        reason,
        host_ip: input.host_ips.first().cloned().unwrap_or_default(),
        host_ips: list(input.host_ips),
        pod_ip: pod_ips.first().cloned().unwrap_or_default(),
        pod_ips: list(pod_ips),
        start_time: input.previous.map_or(whole_seconds(input.now), |previous| previous.start_time),
        init_container_statuses: init,
        container_statuses: normal,
        ephemeral_container_statuses: ephemeral,
        qos_class: qos_class(input.pod),
    }
}

/// A time of CRI; 0 is none.
fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 {
        return None;
    }
    Timestamp::from_second(nanoseconds / 1_000_000_000).ok()
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
