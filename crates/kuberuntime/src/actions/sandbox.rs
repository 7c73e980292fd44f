//! State of a pod's sandboxes, and the actions where the newest one cannot go on. Pure. Called by
//! [`super::compute_pod_actions`].

use cri_api::ContainerState;

use super::plan::{PodActions, start};
use super::reason::{PodReason, StartReason};
use super::restart;
use crate::observed::ObservedPod;
use crate::pod::{Container, Pod};

/// Inspects a pod's sandboxes: the newest one with its attempt, and why it cannot go on; then the attempt is the next one's.
pub(super) fn inspect(pod: &Pod, observed: &ObservedPod) -> (PodActions, Option<PodReason>) {
    let Some(newest) = observed.sandboxes.first() else { return (PodActions::default(), Some(PodReason::NoSandbox)) };
    let ready = observed.sandboxes.iter().filter(|sandbox| sandbox.ready).count();
    let change = if ready > 1 {
        Some(PodReason::ManyReady(ready))
    } else if !newest.ready {
        Some(PodReason::NotReady)
    } else if newest.host_network != pod.host_network() {
        Some(PodReason::NetworkChanged)
    } else if newest.ips.is_empty() && !pod.host_network() {
        Some(PodReason::NoIp)
    } else {
        None
    };
    let attempt = if change.is_some() { newest.attempt.saturating_add(1) } else { newest.attempt };
    (PodActions { sandbox_id: Some(newest.id.clone()), attempt, ..PodActions::default() }, change)
}

/// Replaces a sandbox that cannot be used any more: everything is stopped, and started again in a new sandbox unless
/// the pod is done.
pub(super) fn replace_sandbox(pod: &Pod, observed: &ObservedPod, reason: PodReason, actions: &mut PodActions) {
    actions.kill_pod = Some(reason);
    let spec = &pod.spec;
    let could_restart = spec
        .containers
        .iter()
        .any(|container| restart::after_failure(pod, container) || !container.restart_policy_rules.is_empty());
    if !could_restart && actions.attempt != 0 && !observed.containers.is_empty() {
        // Containers that are never restarted were there: the pod is over. Where there were none, the sandbox failed
        // before the first, and is tried again.
        return;
    }
    // An init container that failed for good is the end of the pod, and the end stays what it is.
    let failed = |container: &Container| {
        let run =
            observed.latest(&container.name).filter(|run| run.state == ContainerState::Exited && run.exit_code != 0);
        !container.is_sidecar() && run.is_some_and(|run| restart::is_over(pod, container, run))
    };
    if spec.init_containers.iter().any(failed) {
        return;
    }
    let to_start: Vec<_> = spec
        .containers
        .iter()
        .enumerate()
        .filter(|(_, container)| {
            !observed.latest(&container.name).is_some_and(|run| restart::is_over(pod, container, run))
        })
        .map(|(index, container)| start(index, container, StartReason::NewSandbox))
        .collect();
    // All of them were there and are done, so the init containers were done as well.
    if to_start.is_empty() {
        return;
    }
    actions.create_sandbox = true;
    match spec.init_containers.first() {
        Some(first) => actions.init_to_start.push(start(0, first, StartReason::NewSandbox)),
        None => actions.containers_to_start = to_start,
    }
}
