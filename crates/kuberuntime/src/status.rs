//! [`pod_status`]: the status of a pod as Kubernetes reports it ([`PodStatus`]), from an observed pod. Pure: the caller passes the
//! observation of the runtime, the clock and the results of probes. Called after each sync of a pod and by commands that show one.

pub(crate) mod api;
mod conditions;
mod containers;
mod input;
mod read;

use crate::pod::ContainerKind;
use crate::qos::qos_class;
use api::whole_seconds;
use api::{Phase, PodIp, PodStatus};
pub(crate) use containers::CONTAINER_CREATING;
pub use input::{PodEnd, StatusInput};

/// Computes the status of a pod. A pod that has succeeded or failed keeps its phase.
#[must_use]
pub fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let spec = &input.pod.spec;
    // A pod that ended before anything of it ran has no containers to report.
    let never_ran = input.observed.containers.is_empty()
        && input.previous.is_some_and(|previous| previous.is_over() && previous.container_statuses.is_empty());
    let statuses = |kind, list: &mut dyn Iterator<Item = &crate::pod::Container>| {
        if never_ran { Vec::new() } else { containers::statuses(input, kind, list) }
    };
    let init = statuses(ContainerKind::Init, &mut spec.init_containers.iter());
    let normal = statuses(ContainerKind::Normal, &mut spec.containers.iter());
    let mut ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.container);
    let ephemeral = statuses(ContainerKind::Ephemeral, &mut ephemeral);
    let before = input.previous.map(|previous| previous.phase);
    let phase = match before {
        Some(over @ (Phase::Succeeded | Phase::Failed)) => over,
        _ if input.ended.is_some() => Phase::Failed,
        _ => conditions::phase(input.pod, input.has_begun(), &init, &normal),
    };
    let reported =
        input.previous.map(|previous| PodEnd { reason: previous.reason.clone(), message: previous.message.clone() });
    let PodEnd { reason, message } = input.ended.cloned().or(reported).unwrap_or_default();
    // With the node's network its addresses are the pod's.
    let pod_ips = if input.pod.host_network() { input.host_ips } else { input.observed.ips() };
    let list = |ips: &[String]| ips.iter().map(|ip| PodIp { ip: ip.clone() }).collect();
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

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
