//! The phase of a pod from the statuses of its containers, and its state as Kubernetes' conditions with their reasons and
//! messages. Pure. Called by [`super::pod_status`].

use jiff::Timestamp;

use super::api::{ContainerState, ContainerStatus, Phase, PodCondition, whole_seconds};
use super::input::StatusInput;
use crate::actions::restart::{self, RestartVerdict};
use crate::observed::ObservedPod;
use crate::pod::{Container, Pod};

/// The conditions that a node reports, in the order in which Kubernetes shows them.
pub(super) const KINDS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Status, reason and message of one condition.
struct ConditionState {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl ConditionState {
    fn yes(reason: &'static str) -> Self {
        Self { holds: true, reason, message: String::new() }
    }

    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

/// Returns all conditions, in the order of [`KINDS`].
pub(super) fn conditions(
    input: &StatusInput<'_>,
    phase: Phase,
    init: &[ContainerStatus],
    normal: &[ContainerStatus],
) -> Vec<PodCondition> {
    let ready = containers_ready(input.pod, phase, init, normal);
    let again = ConditionState { holds: ready.holds, reason: ready.reason, message: ready.message.clone() };
    let findings = [
        has_sandbox(input.pod, input.observed),
        initialised(input, phase, init),
        again,
        ready,
        ConditionState::yes(""),
    ];
    KINDS
        .into_iter()
        .zip(findings)
        .chain(disrupted(input))
        .map(|(kind, finding)| condition(input, kind, finding))
        .collect()
}

/// Returns the condition of a pod that the node has ended and that could have kept running on another one.
fn disrupted(input: &StatusInput<'_>) -> Option<(&'static str, ConditionState)> {
    let end = input.ended.filter(|end| end.reason == "Evicted")?;
    let finding = ConditionState { message: end.message.clone(), ..ConditionState::yes("TerminationByKubelet") };
    Some(("DisruptionTarget", finding))
}

fn condition(input: &StatusInput<'_>, kind: &'static str, finding: ConditionState) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let before = input.previous.and_then(|previous| previous.conditions.iter().find(|c| c.kind == kind));
    let since: Option<Timestamp> = before.filter(|c| c.status == status).map(|c| c.last_transition_time);
    PodCondition {
        kind,
        status,
        last_transition_time: since.unwrap_or(whole_seconds(input.now)),
        reason: finding.reason.to_owned(),
        message: finding.message,
    }
}

/// Containers can be started in its sandbox.
fn has_sandbox(pod: &Pod, observed: &ObservedPod) -> ConditionState {
    let newest = observed.sandboxes.first();
    let ready = newest.is_some_and(|sandbox| sandbox.ready && (pod.host_network() || !sandbox.ips.is_empty()));
    if ready { ConditionState::yes("") } else { ConditionState::no("", "") }
}

fn initialised(input: &StatusInput<'_>, phase: Phase, init: &[ContainerStatus]) -> ConditionState {
    if phase == Phase::Succeeded {
        return ConditionState::yes("PodCompleted");
    }
    if input.has_begun() {
        return ConditionState::yes("");
    }
    let done = |(container, status): &(&Container, &ContainerStatus)| match container.is_sidecar() {
        true => status.started == Some(true),
        false => status.ready,
    };
    let pairs = input.pod.spec.init_containers.iter().zip(init);
    let incomplete: Vec<&str> = pairs.filter(|pair| !done(pair)).map(|(_, status)| status.name.as_str()).collect();
    match incomplete.is_empty() {
        true => ConditionState::yes(""),
        false => ConditionState::no(
            "ContainersNotInitialized",
            format!("containers with incomplete status: [{}]", incomplete.join(" ")),
        ),
    }
}

fn containers_ready(pod: &Pod, phase: Phase, init: &[ContainerStatus], normal: &[ContainerStatus]) -> ConditionState {
    match phase {
        Phase::Succeeded => return ConditionState::no("PodCompleted", ""),
        Phase::Failed => return ConditionState::no("PodFailed", ""),
        Phase::Pending | Phase::Running => {}
    }
    let sidecars = pod.spec.init_containers.iter().zip(init).filter(|(container, _)| container.is_sidecar());
    let sidecars = sidecars.map(|(_, status)| status);
    let unready = sidecars.chain(normal).filter(|status| !status.ready).map(|status| status.name.as_str());
    let unready: Vec<&str> = unready.collect();
    match unready.is_empty() {
        true => ConditionState::yes(""),
        false => {
            ConditionState::no("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
        }
    }
}

/// Returns the phase of a pod. `has_begun` is true if a normal container was started, so that all init containers had ended.
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
