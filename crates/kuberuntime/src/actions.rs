//! [`compute_pod_actions`]: the actions that a pod needs, from its spec, its state in the runtime and the results of
//! its probes. Pure; each action has a reason that can be printed. It performs no action, makes no requests, and knows
//! no back-off: a container that is to be started may have to wait. Called by the sync of a pod and by the command that
//! explains a pod.

mod containers;
mod init;
mod plan;
mod probed;
mod reason;
pub(crate) mod restart;
mod sandbox;

use crate::observed::ObservedPod;
use crate::pod::Pod;
use plan::start;
pub(crate) use plan::{ContainerKill, ContainerReset, PodActions};
pub use probed::{ProbeResult, ProbeResults, Probed};
pub(crate) use reason::{KillReason, LeaveReason, PodReason, StartReason};
pub(crate) use restart::{RestartVerdict, restart_verdict};

/// Computes everything that `pod` needs done.
#[must_use]
pub(crate) fn compute_pod_actions(pod: &Pod, observed: &ObservedPod, probes: &ProbeResults) -> PodActions {
    let (mut actions, change) = sandbox::inspect(pod, observed);
    if pod.metadata.deletion_timestamp.is_some() {
        actions.kill_pod = Some(PodReason::Deleted);
        return actions;
    }
    if let Some(reason) = change {
        sandbox::replace_sandbox(pod, observed, reason, &mut actions);
        return actions;
    }
    restart::reset(pod, observed, &mut actions);
    if !actions.containers_to_reset.is_empty() {
        return actions;
    }
    for (index, ephemeral) in pod.spec.ephemeral_containers.iter().enumerate() {
        // Ephemeral containers start once, even before the pod is initialised.
        if observed.latest(&ephemeral.container.name).is_none() {
            actions.ephemeral_to_start.push(start(index, &ephemeral.container, StartReason::New));
        }
    }
    if init::init_containers(pod, observed, probes, &mut actions) {
        containers::normal_containers(pod, observed, probes, &mut actions);
    }
    actions
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "actions_init_tests.rs"]
mod init_tests;
