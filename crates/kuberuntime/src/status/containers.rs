//! The statuses of a pod's containers: what each does, how it ended before, whether it is ready. Pure. Called by
//! [`super::pod_status`].

use cri_api::ContainerState as Seen;

use super::api::time;
use super::api::{ContainerState, ContainerStatus, PodStatus, Running, Terminated, Waiting};
use super::input::StatusInput;
use crate::actions::{ProbeResult, RestartVerdict, restart_verdict};
use crate::observed::ObservedContainer;
use crate::pod::{Container, ContainerKind};

/// Exit code of a container whose end is unknown: as if it had been killed.
const UNKNOWN_EXIT_CODE: i32 = 137;
const UNKNOWN: &str = "ContainerStatusUnknown";

/// Waits for its turn in a pod that has init containers.
pub(super) const POD_INITIALIZING: &str = "PodInitializing";
/// Waits for its turn, or for its hook after the start.
pub(crate) const CONTAINER_CREATING: &str = "ContainerCreating";

/// Returns the statuses of all containers of a kind, in the order of the spec.
pub(super) fn statuses<'c>(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    containers: impl Iterator<Item = &'c Container>,
) -> Vec<ContainerStatus> {
    containers.map(|container| status(input, kind, container)).collect()
}

fn status(input: &StatusInput<'_>, kind: ContainerKind, container: &Container) -> ContainerStatus {
    let before = input.previous.and_then(|previous| of(previous, kind, &container.name));
    let mut runs = input.observed.runs(&container.name);
    let mut status = match runs.next() {
        // An init container of an earlier sandbox must run again.
        Some(run) if kind == ContainerKind::Init && input.observed.latest_in_sandbox(&run.name).is_none() => {
            ContainerStatus {
                restart_count: run.restart_count(),
                last_state: (run.state == Seen::Exited).then(|| terminated(input, run)),
                ..unseen(input, kind, container, None)
            }
        }
        Some(run) => seen(input, container, run, before),
        None => unseen(input, kind, container, before),
    };
    if let Some(earlier) = runs.next() {
        status.last_state = Some(terminated(input, earlier));
    }
    wait_for_start(input, kind, container, &mut status);
    wait_for_hook(input, &mut status);
    readiness(input, kind, container, &mut status);
    status
}

/// Returns the status of a container in an earlier status of its pod.
fn of<'s>(status: &'s PodStatus, kind: ContainerKind, name: &str) -> Option<&'s ContainerStatus> {
    let list = match kind {
        ContainerKind::Init => &status.init_container_statuses,
        ContainerKind::Normal => &status.container_statuses,
        ContainerKind::Ephemeral => &status.ephemeral_container_statuses,
    };
    list.iter().find(|status| status.name == name)
}

/// Returns the status of a container that the runtime lists.
fn seen(
    input: &StatusInput<'_>,
    container: &Container,
    run: &ObservedContainer,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = container_id(input, &run.id);
    let ran = before.is_some_and(|before| before.state.is_running() && before.container_id == id);
    let state = match run.state {
        Seen::Running => ContainerState::Running(Running { started_at: time(run.started_at) }),
        Seen::Exited => ContainerState::Terminated(terminated(input, run)),
        Seen::Unknown if ran => ContainerState::Terminated(Terminated {
            exit_code: UNKNOWN_EXIT_CODE,
            reason: UNKNOWN.to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            ..Terminated::default()
        }),
        // The kubelet takes one that was created, and not started yet, for one that ended well: a pod that never restarts
        // anything could then be seen to have succeeded, for good.
        Seen::Created | Seen::Unknown => ContainerState::Waiting(turn(input)),
    };
    ContainerStatus {
        name: container.name.clone(),
        state,
        last_state: before.and_then(|before| before.last_state.clone()),
        ready: false,
        restart_count: run.restart_count(),
        image: if run.image.is_empty() { container.image.clone() } else { run.image.clone() },
        image_id: run.image_ref.clone(),
        container_id: id,
        started: None,
    }
}

/// Status of a container that the runtime does not show: it waits, or it was removed.
fn unseen(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        state: ContainerState::Waiting(turn(input)),
        last_state: None,
        ready: false,
        restart_count: 0,
        image: container.image.clone(),
        image_id: String::new(),
        container_id: String::new(),
        started: None,
    };
    let runs_to_its_end = kind == ContainerKind::Init && !container.is_sidecar();
    if let Some(before) = before {
        if before.state.terminated().is_some() {
            // The end was reported, and the container has been collected since.
            return before.clone();
        }
        status.restart_count = before.restart_count;
        status.last_state.clone_from(&before.last_state);
        if before.state.is_running() && !runs_to_its_end {
            status.last_state = Some(Terminated {
                exit_code: UNKNOWN_EXIT_CODE,
                reason: UNKNOWN.to_owned(),
                message:
                    "The container could not be located when the pod was deleted.  The container used to be Running"
                        .to_owned(),
                ..Terminated::default()
            });
            if input.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count += 1;
            }
        }
    }
    if runs_to_its_end && input.has_begun() {
        let message = "Unable to get init container status from container runtime and pod has been initialized, treat it \
                       as exit normally";
        let (reason, message) = ("Completed".to_owned(), message.to_owned());
        status.state = ContainerState::Terminated(Terminated { reason, message, ..Terminated::default() });
    }
    status
}

/// Returns the reason for which an unknown container waits.
fn turn(input: &StatusInput<'_>) -> Waiting {
    let reason = if input.pod.spec.init_containers.is_empty() { CONTAINER_CREATING } else { POD_INITIALIZING };
    Waiting { reason: reason.to_owned(), message: String::new() }
}

/// Shows the reason of a container that should be started and could not be; its previous end becomes its last state. A
/// container that should be started and has not failed keeps its state, which is more specific.
fn wait_for_start(input: &StatusInput<'_>, kind: ContainerKind, container: &Container, status: &mut ContainerStatus) {
    let is_done = kind == ContainerKind::Init
        && !container.is_sidecar()
        && status.state.terminated().is_some_and(|terminated| terminated.exit_code == 0);
    let starts = match kind {
        ContainerKind::Ephemeral => input.observed.latest(&container.name).is_none(),
        _ => matches!(restart_verdict(input.pod, container, input.observed), RestartVerdict::Start(_)),
    };
    if is_done || !starts {
        return;
    }
    let Some(why) = input.waiting.get(&container.name) else { return };
    if let Some(terminated) = status.state.terminated() {
        status.last_state = Some(terminated.clone());
    }
    status.state = ContainerState::Waiting(why.clone());
}

/// Shows a container as waiting while its postStart hook runs.
fn wait_for_hook(input: &StatusInput<'_>, status: &mut ContainerStatus) {
    let why = input.waiting.get(&status.name).filter(|why| why.reason == CONTAINER_CREATING);
    if let (true, Some(why)) = (status.state.is_running(), why) {
        status.state = ContainerState::Waiting(why.clone());
    }
}

/// Returns whether the container has started, and whether it is ready.
fn readiness(input: &StatusInput<'_>, kind: ContainerKind, container: &Container, status: &mut ContainerStatus) {
    let running = status.state.is_running();
    let latest = input.observed.latest(&container.name);
    let probed = latest.map(|run| input.probes.of(&run.id)).unwrap_or_default();
    let good = |probe: bool, result: Option<ProbeResult>| !probe || result == Some(ProbeResult::Success);
    let started = running && good(container.startup_probe.is_some(), probed.startup);
    status.started = Some(started);
    status.ready = match kind {
        ContainerKind::Init if !container.is_sidecar() => status.state.terminated().is_some_and(|t| t.exit_code == 0),
        ContainerKind::Ephemeral => false,
        _ => started && good(container.readiness_probe.is_some(), probed.readiness),
    };
}

/// Returns the end of a run.
fn terminated(input: &StatusInput<'_>, run: &ObservedContainer) -> Terminated {
    Terminated {
        exit_code: run.exit_code,
        reason: run.reason.clone(),
        message: run.message.clone(),
        started_at: time(run.started_at),
        finished_at: time(run.finished_at),
        container_id: container_id(input, &run.id),
    }
}

fn container_id(input: &StatusInput<'_>, id: &str) -> String {
    format!("{}://{id}", input.runtime_name)
}
