//! The phase of a pod, from the statuses of its containers. Pure. Called by [`super::pod_status`].

use super::api::{ContainerState, ContainerStatus, Phase};
use crate::actions::restart::{self, RestartVerdict};
use crate::pod::{Container, Pod};

/// How far a pod is. `has_begun`: a normal container was started, so that all init containers had been done.
pub(super) fn phase(pod: &Pod, has_begun: bool, init: &[ContainerStatus], normal: &[ContainerStatus]) -> Phase {
    let mut initialising = false;
    for (container, status) in pod.spec.init_containers.iter().zip(init) {
        match &status.state {
            _ if container.is_sidecar() => initialising |= !has_begun && status.started != Some(true),
            ContainerState::Terminated(end) if end.exit_code != 0 => {
                if !restarts(pod, container, end.exit_code) {
                    return Phase::Failed;
                }
                initialising = true;
            }
            ContainerState::Terminated(_) => {}
            ContainerState::Running(_) => initialising = true,
            ContainerState::Waiting(_) => initialising |= !has_begun,
        }
    }
    let (mut running, mut waiting, mut failed, mut again) = (0, 0, 0, false);
    for (container, status) in pod.spec.containers.iter().zip(normal) {
        let end = match (&status.state, &status.last_state) {
            (ContainerState::Running(_), _) => {
                running += 1;
                continue;
            }
            (ContainerState::Terminated(end), _) | (ContainerState::Waiting(_), Some(end)) => end,
            (ContainerState::Waiting(_), None) => {
                waiting += 1;
                continue;
            }
        };
        again |= restarts(pod, container, end.exit_code);
        failed += usize::from(end.exit_code != 0);
    }
    if initialising || waiting > 0 {
        Phase::Pending
    } else if running > 0 || again {
        Phase::Running
    } else if failed > 0 {
        Phase::Failed
    } else {
        Phase::Succeeded
    }
}

/// Returns true if a container that ended so is started again. None is once the pod is being deleted.
fn restarts(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && matches!(restart::ended(pod, container, exit_code), RestartVerdict::Start(_))
}
