//! Normal containers, once the pod is initialised: which are started, which are stopped, and whether the pod is over.
//! Pure. Called by [`super::compute_pod_actions`].

use cri_api::ContainerState;

use super::plan::{PodActions, changed, start};
use super::probed::{ProbeResult, ProbeResults};
use super::reason::{KillReason, PodReason, StartReason};
use super::restart::{self, RestartVerdict, restart_verdict};
use crate::observed::{ObservedContainer, ObservedPod};
use crate::pod::{Container, ContainerKind, Pod};

/// Decides about the normal containers.
pub(super) fn normal_containers(pod: &Pod, observed: &ObservedPod, probes: &ProbeResults, actions: &mut PodActions) {
    let mut kept = 0;
    for (index, container) in pod.spec.containers.iter().enumerate() {
        let run = observed.latest(&container.name);
        actions.kill_doubles(container, ContainerKind::Normal, observed);
        match run.filter(|run| run.state == ContainerState::Running) {
            None => {
                let RestartVerdict::Start(reason) = restart_verdict(pod, container, observed) else { continue };
                if let Some(run) = run.filter(|run| run.state == ContainerState::Unknown) {
                    // It may run: there must not be two of them.
                    let message = "Container is in \"unknown\" state, try killing it before restart".to_owned();
                    actions.kill(run, ContainerKind::Normal, KillReason::Unknown, message);
                }
                actions.containers_to_start.push(start(index, container, reason));
            }
            Some(run) => match why_to_stop(container, run, probes) {
                None => kept += 1,
                Some((kill, mut message, reason)) => {
                    if kill == KillReason::Changed || restart::after_failure(pod, container) {
                        message.push_str(", will be restarted");
                        actions.containers_to_start.push(start(index, container, reason));
                    }
                    actions.kill(run, ContainerKind::Normal, kill, message);
                }
            },
        }
    }
    if kept == 0 && actions.containers_to_start.is_empty() {
        actions.kill_pod = Some(PodReason::NothingRuns);
        // A sidecar does not keep its pod alive.
        actions.init_to_start.clear();
    }
}

fn why_to_stop(
    container: &Container,
    run: &ObservedContainer,
    probes: &ProbeResults,
) -> Option<(KillReason, String, StartReason)> {
    let (probed, name) = (probes.of(&run.id), &container.name);
    if changed(container, run) {
        Some((KillReason::Changed, format!("Container {name} definition changed"), StartReason::Changed))
    } else if probed.liveness == Some(ProbeResult::Failure) {
        let message = format!("Container {name} failed liveness probe");
        Some((KillReason::LivenessProbe, message, StartReason::LivenessFailed))
    } else if probed.startup == Some(ProbeResult::Failure) {
        let message = format!("Container {name} failed startup probe");
        Some((KillReason::StartupProbe, message, StartReason::StartupFailed))
    } else {
        None
    }
}
