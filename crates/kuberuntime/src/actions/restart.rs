//! [`restart_verdict`]: whether a container that does not run is started, by its pod's restart policy, its own, and its
//! restart rules. Pure. Called by the computation of actions and by the status.

use cri_api::ContainerState;

use super::reason::{LeaveReason, StartReason};
use crate::pod::{Container, ExitCodeOperator, Pod, RestartAction, RestartPolicy};
use crate::status::{ObservedContainer, ObservedPod};

/// Decision about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Start(StartReason),
    /// The container is left as it is.
    Leave(LeaveReason),
}

/// Decides whether `container`, one of the pod's normal or init containers, is started.
#[must_use]
pub fn restart_verdict(pod: &Pod, container: &Container, observed: &ObservedPod) -> Verdict {
    if pod.metadata.deletion_timestamp.is_some() {
        return Verdict::Leave(LeaveReason::PodDeleted);
    }
    let Some(run) = observed.latest(&container.name) else { return Verdict::Start(StartReason::New) };
    match run.state {
        ContainerState::Running => Verdict::Leave(LeaveReason::Running),
        ContainerState::Created => Verdict::Start(StartReason::Created),
        ContainerState::Unknown => Verdict::Start(StartReason::Unknown),
        ContainerState::Exited => ended(pod, container, run.exit_code),
    }
}

/// Returns true if a container that ended with `exit_code` is started again.
pub(crate) fn ended(pod: &Pod, container: &Container, exit_code: i32) -> Verdict {
    if let Some((rule, _)) = matching_rule(container, exit_code) {
        return Verdict::Start(StartReason::Rule { exit_code, rule });
    }
    let policy = policy(pod, container);
    let again = match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    };
    match again {
        true => Verdict::Start(StartReason::Ended { exit_code, policy }),
        false => Verdict::Leave(LeaveReason::Ended { exit_code, policy }),
    }
}

/// The policy that is in force for a container: its own goes before its pod's.
pub(crate) fn policy(pod: &Pod, container: &Container) -> RestartPolicy {
    container.restart_policy.unwrap_or(pod.spec.restart_policy())
}

/// Returns true if a container is started again after it was stopped for a failure of its own.
pub(super) fn after_failure(pod: &Pod, container: &Container) -> bool {
    policy(pod, container) != RestartPolicy::Never
}

/// The first rule for an exit code, and where it stands.
pub(super) fn matching_rule(container: &Container, exit_code: i32) -> Option<(usize, RestartAction)> {
    container.restart_policy_rules.iter().enumerate().find_map(|(index, rule)| {
        let among = rule.exit_codes.values.contains(&i64::from(exit_code));
        let matches = match rule.exit_codes.operator? {
            ExitCodeOperator::In => among,
            ExitCodeOperator::NotIn => !among,
        };
        if matches { Some((index, rule.action?)) } else { None }
    })
}

/// Returns true if this run of a container is the last one, whatever happens to the pod's sandbox.
pub(super) fn is_over(pod: &Pod, container: &Container, run: &ObservedContainer) -> bool {
    match run.state {
        ContainerState::Exited => matches!(ended(pod, container, run.exit_code), Verdict::Leave(_)),
        // It ends with its sandbox, and not well.
        ContainerState::Running => policy(pod, container) == RestartPolicy::Never,
        ContainerState::Created | ContainerState::Unknown => false,
    }
}
