//! Init containers: one after the other to its end, with sidecars that are started in their turn and then kept running.
//! Pure. Called by [`super::compute_pod_actions`].

use cri_api::ContainerState;

use super::plan::{PodActions, changed, start};
use super::probed::{ProbeResult, ProbeResults};
use super::reason::{KillReason, PodReason, StartReason};
use super::restart::{self, RestartVerdict};
use crate::observed::{ObservedContainer, ObservedPod};
use crate::pod::{Container, ContainerKind, Pod};

/// Progress of the init containers, and the actions that they require.
struct InitWalk<'a> {
    pod: &'a Pod,
    probes: &'a ProbeResults,
    actions: &'a mut PodActions,
    /// A later container has shown that those before it are done.
    reached: bool,
    /// All of them are done.
    initialised: bool,
}

/// Decides about the init containers. Returns true if all are done and the normal containers are next.
pub(super) fn init_containers(
    pod: &Pod,
    observed: &ObservedPod,
    probes: &ProbeResults,
    actions: &mut PodActions,
) -> bool {
    let containers = &pod.spec.init_containers;
    if containers.is_empty() {
        return true;
    }
    // A normal container that is there shows that all are done, though the runtime may show nothing of them any more. One
    // that has ended shows nothing: it may be of a sandbox before this one.
    let initialised = pod.spec.containers.iter().any(|container| {
        let state = observed.latest_in_sandbox(&container.name).map(|run| run.state);
        matches!(state, Some(ContainerState::Created | ContainerState::Running))
    });
    let mut walk = InitWalk { pod, probes, actions, reached: initialised, initialised };
    // From the last to the first: the last one with a remaining run shows how far the pod is.
    for (index, container) in containers.iter().enumerate().rev() {
        walk.actions.kill_doubles(container, ContainerKind::Init, observed);
        match observed.latest_in_sandbox(&container.name) {
            None if walk.reached && container.is_sidecar() => walk.start(index, StartReason::SidecarGone),
            None => {}
            Some(_) if walk.reached && !container.is_sidecar() => {}
            Some(run) => {
                if let Err(reason) = walk.decide(index, container, run) {
                    actions.kill_pod = Some(reason);
                    actions.init_to_start.clear();
                    return false;
                }
                walk.reached = true;
            }
        }
    }
    if !walk.reached {
        walk.start(0, StartReason::New);
    }
    let initialised = walk.initialised;
    actions.init_to_start.reverse();
    initialised
}

impl InitWalk<'_> {
    fn start(&mut self, index: usize, reason: StartReason) {
        let container = &self.pod.spec.init_containers[index];
        self.actions.init_to_start.push(start(index, container, reason));
    }

    /// Continues after the container at `index`, which has succeeded or runs as a sidecar.
    fn advance(&mut self, index: usize) {
        if index + 1 == self.pod.spec.init_containers.len() {
            self.initialised = true;
        } else if !self.reached {
            self.start(index + 1, StartReason::Next);
        }
    }

    /// Decides about one that the runtime shows. An error is the end of the pod.
    fn decide(&mut self, index: usize, container: &Container, run: &ObservedContainer) -> Result<(), PodReason> {
        let sidecar = container.is_sidecar();
        match run.state {
            // It is created and started in one go, so the runtime failed in between.
            ContainerState::Created => self.start(index, StartReason::Created),
            ContainerState::Running if sidecar => self.running_sidecar(index, container, run),
            ContainerState::Running => {}
            ContainerState::Exited if sidecar => {
                self.start(index, StartReason::SidecarEnded { exit_code: run.exit_code });
            }
            ContainerState::Exited if run.exit_code == 0 => self.advance(index),
            ContainerState::Exited => match restart::ended(self.pod, container, run.exit_code) {
                RestartVerdict::Start(reason) => self.start(index, reason),
                RestartVerdict::Leave(_) => {
                    return Err(PodReason::InitFailed { name: run.name.clone(), exit_code: run.exit_code });
                }
            },
            ContainerState::Unknown if sidecar || restart::after_failure(self.pod, container) => {
                let message = "Init container is in \"unknown\" state, try killing it before restart".to_owned();
                self.actions.kill(run, ContainerKind::Init, KillReason::Unknown, message);
                self.start(index, StartReason::Unknown);
            }
            ContainerState::Unknown => return Err(PodReason::InitUnknown { name: run.name.clone() }),
        }
        Ok(())
    }

    fn running_sidecar(&mut self, index: usize, container: &Container, run: &ObservedContainer) {
        let probed = self.probes.of(&run.id);
        let name = &container.name;
        if container.startup_probe.is_some() && probed.startup != Some(ProbeResult::Success) {
            if probed.startup == Some(ProbeResult::Failure) {
                let message = format!("Init container {name} failed startup probe");
                self.actions.kill(run, ContainerKind::Init, KillReason::StartupProbe, message);
                self.start(index, StartReason::StartupFailed);
            }
            return;
        }
        // Whether it also lives is of no concern to the next one.
        self.advance(index);
        if changed(container, run) {
            let message = format!("Init container {name} definition changed");
            self.actions.kill(run, ContainerKind::Init, KillReason::Changed, message);
            self.start(index, StartReason::Changed);
        } else if container.liveness_probe.is_some() && probed.liveness == Some(ProbeResult::Failure) {
            let message = format!("Init container {name} failed liveness probe");
            self.actions.kill(run, ContainerKind::Init, KillReason::LivenessProbe, message);
            self.start(index, StartReason::LivenessFailed);
        }
    }
}
