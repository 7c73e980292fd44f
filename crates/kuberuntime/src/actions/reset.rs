//! Restart rules that ask for more than their container: all containers of the pod are removed and begin anew, in the same
//! sandbox. Nothing of it is remembered: as long as the run that asked for it is there, what is left is removed, it last.
//! Pure. Called by [`super::compute_pod_actions`].

use cri_api::ContainerState;

use super::plan::{PodActions, Reset};
use super::restart::matching_rule;
use crate::pod::{ContainerKind, Pod, RestartAction};
use crate::status::{ObservedContainer, ObservedPod};

/// Lists what is removed, where a rule asks for it.
pub(super) fn reset(pod: &Pod, observed: &ObservedPod, actions: &mut PodActions) {
    let containers = || pod.all_containers().filter(|(kind, _)| *kind != ContainerKind::Ephemeral);
    let asks = containers().find_map(|(_, container)| {
        let run = observed.latest_here(&container.name).filter(|run| run.state == ContainerState::Exited)?;
        let (_, action) = matching_rule(container, run.exit_code)?;
        (action == RestartAction::RestartAllContainers).then_some(run)
    });
    let Some(asks) = asks else { return };
    let others = containers().flat_map(|(_, container)| observed.runs(&container.name)).filter(|run| run.id != asks.id);
    actions.containers_to_reset = others.chain([asks]).map(one).collect();
}

fn one(run: &ObservedContainer) -> Reset {
    // Of one in an unknown state nobody knows that it does not run.
    let kill = matches!(run.state, ContainerState::Running | ContainerState::Unknown);
    Reset { id: run.id.clone(), name: run.name.clone(), kill }
}
