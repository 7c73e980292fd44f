//! The reason why a container does not run, as far as the agent that keeps its pod reports it: a runtime knows nothing of a container that
//! was not created yet, for example because its image is missing. Called by `logs`, `exec` and `attach` for their error messages.

use agent::pods::shape::{ContainerStatus, Pod, State};

use super::pod_list::{Listed, ask};
use super::target::{PodIdentity, PodName};
use crate::app::App;
use crate::exit::{Code, Failure};

/// Returns the reason for the state of a container of this pod; `None` if no agent reports one.
pub(super) async fn reason(app: &App, pod: &PodIdentity, container: &str) -> Option<String> {
    let (pods, _) = ask(app).await.ok()?;
    let listed = pods.iter().find(|listed| listed.pod.metadata.uid == pod.uid)?;
    state_reason(&statuses(&listed.pod).find(|status| status.name == container)?.state)
}

/// Returns the failure for a pod that the runtime does not have: `failure`, or the state of the pod if the agent has one of this name.
pub(super) async fn explain_absent(app: &App, name: &PodName, failure: Failure) -> Failure {
    if failure.code() != Code::Failed {
        return failure;
    }
    let Ok((pods, _)) = ask(app).await else { return failure };
    let known: Vec<PodIdentity> = pods.iter().map(Listed::known).collect();
    let Ok(index) = name.choose(&known) else { return failure };
    Failure::failed(pod_state(&pods[index].pod))
}

/// Describes a pod that has no container yet.
fn pod_state(pod: &Pod) -> String {
    let reasons = statuses(pod).filter_map(|status| Some((&status.name, state_reason(&status.state)?)));
    let mut reasons: Vec<String> = reasons.map(|(name, why)| format!("container {name:?}: {why}")).collect();
    reasons.extend((!pod.status.reason.is_empty()).then(|| with_message(&pod.status.reason, &pod.status.message)));
    let title = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    format!("no container of pod {title} has started{reasons} (`imagelet describe {title}` has its events)")
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = &pod.status;
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
    statuses.chain(&status.ephemeral_container_statuses)
}

fn state_reason(state: &State) -> Option<String> {
    if let Some(waiting) = &state.waiting {
        return (!waiting.reason.is_empty()).then(|| with_message(&waiting.reason, &waiting.message));
    }
    let terminated = state.terminated.as_ref().filter(|terminated| !terminated.reason.is_empty())?;
    Some(with_message(&terminated.reason, &terminated.message))
}

/// Joins a reason and its message, which takes one line.
pub(super) fn with_message(reason: &str, message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    [reason, &message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_state_of_a_pod_names_every_reason() {
        let pod = Pod::of(&json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "status": {"containerStatuses": [
                {"name": "app", "state": {"waiting": {"reason": "ErrImagePull", "message": "pull r/app:1:\n not found"}}},
                {"name": "side", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        }));
        assert_eq!(
            pod_state(&pod.expect("a pod")),
            "no container of pod shop/web has started: container \"app\": ErrImagePull: pull r/app:1: not found; \
             container \"side\": ContainerCreating (`imagelet describe shop/web` has its events)"
        );
        assert_eq!(state_reason(&State::default()), None);
    }
}
