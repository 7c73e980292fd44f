//! [`restart_verdict`]: whether a container that does not run is started, by its pod's restart policy, its own, and its
//! restart rules; and the rules that ask for more than their container ([`reset`]). Pure. Called by the computation of
//! actions and by the status.

use cri_api::ContainerState;

use super::plan::{ContainerReset, PodActions};
use super::reason::{LeaveReason, StartReason};
use crate::observed::{ObservedContainer, ObservedPod};
use crate::pod::{Container, ContainerKind, ExitCodeOperator, Pod, RestartAction, RestartPolicy, Word as _};

/// Decision about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestartVerdict {
    Start(StartReason),
    /// The container is left as it is.
    Leave(LeaveReason),
}

/// Decides whether `container`, one of the pod's normal or init containers, is started.
#[must_use]
pub(crate) fn restart_verdict(pod: &Pod, container: &Container, observed: &ObservedPod) -> RestartVerdict {
    if pod.metadata.deletion_timestamp.is_some() {
        return RestartVerdict::Leave(LeaveReason::PodDeleted);
    }
    let Some(run) = observed.latest(&container.name) else { return RestartVerdict::Start(StartReason::New) };
    match run.state {
        ContainerState::Running => RestartVerdict::Leave(LeaveReason::Running),
        ContainerState::Created => RestartVerdict::Start(StartReason::Created),
        ContainerState::Unknown => RestartVerdict::Start(StartReason::Unknown),
        ContainerState::Exited => ended(pod, container, run.exit_code),
    }
}

/// Returns true if a container that ended with `exit_code` is started again.
pub(crate) fn ended(pod: &Pod, container: &Container, exit_code: i32) -> RestartVerdict {
    if let Some((rule, _)) = matching_rule(container, exit_code) {
        return RestartVerdict::Start(StartReason::Rule { exit_code, rule });
    }
    let policy = policy(pod, container);
    let again = match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    };
    match again {
        true => RestartVerdict::Start(StartReason::Ended { exit_code, policy }),
        false => RestartVerdict::Leave(LeaveReason::Ended { exit_code, policy }),
    }
}

/// Returns the policy that is in force for a container: its own takes precedence over its pod's.
pub(crate) fn policy(pod: &Pod, container: &Container) -> RestartPolicy {
    container.restart_policy.unwrap_or(pod.spec.restart_policy())
}

/// Returns true if a container is started again after it was stopped for a failure of its own.
pub(super) fn after_failure(pod: &Pod, container: &Container) -> bool {
    policy(pod, container) != RestartPolicy::Never
}

/// Returns the first rule for an exit code, and its index.
pub(super) fn matching_rule(container: &Container, exit_code: i32) -> Option<(usize, RestartAction)> {
    container.restart_policy_rules.iter().enumerate().find_map(|(index, rule)| {
        let codes = rule.exit_codes.as_ref()?;
        let among = codes.values.iter().flatten().any(|code| *code == exit_code);
        let matches = match ExitCodeOperator::of(Some(&codes.operator))? {
            ExitCodeOperator::In => among,
            ExitCodeOperator::NotIn => !among,
        };
        if matches { Some((index, RestartAction::of(Some(&rule.action))?)) } else { None }
    })
}

/// Returns true if this run of a container is the last one, whatever happens to the pod's sandbox.
pub(super) fn is_over(pod: &Pod, container: &Container, run: &ObservedContainer) -> bool {
    match run.state {
        ContainerState::Exited => matches!(ended(pod, container, run.exit_code), RestartVerdict::Leave(_)),
        // It ends with its sandbox, and not well.
        ContainerState::Running => policy(pod, container) == RestartPolicy::Never,
        ContainerState::Created | ContainerState::Unknown => false,
    }
}

/// Lists what is removed, where a rule asks for it.
pub(super) fn reset(pod: &Pod, observed: &ObservedPod, actions: &mut PodActions) {
    let containers = || pod.all_containers().filter(|(kind, _)| *kind != ContainerKind::Ephemeral);
    let asks = containers().find_map(|(_, container)| {
        let run = observed.latest_in_sandbox(&container.name).filter(|run| run.state == ContainerState::Exited)?;
        let (_, action) = matching_rule(container, run.exit_code)?;
        (action == RestartAction::RestartAllContainers).then_some(run)
    });
    let Some(asks) = asks else { return };
    let others = containers().flat_map(|(_, container)| observed.runs(&container.name)).filter(|run| run.id != asks.id);
    actions.containers_to_reset = others.chain([asks]).map(one).collect();
}

fn one(run: &ObservedContainer) -> ContainerReset {
    // A container in an unknown state may still run.
    let kill = matches!(run.state, ContainerState::Running | ContainerState::Unknown);
    ContainerReset { id: run.id.clone(), name: run.name.clone(), kill }
}
