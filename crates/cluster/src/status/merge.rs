//! [`merged`]: the status of a pod that its server should have, from the one that it has and from the node's view. Conditions of
//! other writers stay, and a status never moves backwards: an ended container does not run again, and a pod has not ended while
//! anything of it may run. Pure; the rules are the kubelet's. Called by [`super::StatusManager`].

use serde_json::{Value, json};

use super::patch::without_nulls;

/// The condition that evictions set, those of this node and of other clients.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The node's view of a pod.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Status in Kubernetes' shape.
    pub status: Value,
    /// True while a container may run.
    pub may_run: bool,
    /// True once all of the pod has ended for good.
    pub has_ended: bool,
    /// Generation of the spec of this status.
    pub generation: Option<i64>,
    /// Types of the conditions that clients set, and on which readiness depends.
    pub readiness_gates: Vec<String>,
    /// Restart policy of the pod.
    pub restart_policy: &'static str,
}

/// Reason for which a status is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Backwards {
    #[error("pod has {0} and would go back to {1}")]
    Phase(String, String),
    #[error("container {0} terminated and would go back to a state in which it may run")]
    Container(String),
}

/// Returns the status that the server should have, given that it has `old`.
pub(crate) fn merged(old: &Value, view: &NodeView) -> Result<Value, Backwards> {
    let old = without_nulls(old);
    let mut new = without_nulls(&view.status);
    if view.has_ended {
        end(&mut new);
    }
    let phase = |status: &Value| status["phase"].as_str().unwrap_or_default().to_owned();
    if is_over(&old) && !is_over(&new) {
        return Err(Backwards::Phase(phase(&old), phase(&new)));
    }
    check_containers(&old, &new, view.restart_policy)?;
    let ends = is_over(&new) && !is_over(&old);
    if !ends || view.may_run {
        // A disruption is reported with the end of its pod, once nothing runs any more; until then the server's condition stays.
        if let Some(conditions) = new["conditions"].as_array_mut() {
            conditions.retain(|condition| condition["type"] != DISRUPTION_TARGET);
        }
    }
    if is_over(&new) && !is_over(&old) && view.may_run {
        for field in ["phase", "reason", "message"] {
            set(&mut new, field, old.get(field).cloned());
        }
        if new.get("phase").is_none() {
            new["phase"] = json!("Pending");
        }
    }
    check_gates(&mut new, &old, &view.readiness_gates);
    keep_times(&mut new, &old);
    if let Some(generation) = view.generation {
        new["observedGeneration"] = json!(generation);
        for condition in new["conditions"].as_array_mut().into_iter().flatten() {
            condition["observedGeneration"] = json!(generation);
        }
    }
    Ok(new)
}

fn set(status: &mut Value, field: &str, value: Option<Value>) {
    let Some(status) = status.as_object_mut() else { return };
    match value {
        Some(value) => drop(status.insert(field.to_owned(), value)),
        None => drop(status.remove(field)),
    }
}

/// Returns true if the pod of a status has succeeded or failed.
pub(crate) fn is_over(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn list<'s>(status: &'s Value, field: &str) -> &'s [Value] {
    status[field].as_array().map_or(&[], Vec::as_slice)
}

/// Marks the containers of a pod that has ended as failed if their exit is unknown, as the kubelet does.
fn end(status: &mut Value) {
    let terminated = json!({
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    });
    let has_begun = is_initialised(status);
    // Those behind the last one that was ever started never had their turn; the first one had.
    let begun_init = list(status, "initContainerStatuses").iter().rposition(was_started).map_or(1, |last| last + 1);
    let mut fail = |field: &str, most: usize| {
        for container in status[field].as_array_mut().into_iter().flatten().take(most) {
            if container["state"].get("terminated").is_none() {
                container["state"] = json!({"terminated": terminated.clone()});
                container["ready"] = json!(false);
                container["started"] = json!(false);
            }
        }
    };
    fail("initContainerStatuses", begun_init);
    if has_begun {
        fail("containerStatuses", usize::MAX);
        fail("ephemeralContainerStatuses", usize::MAX);
    }
    if !is_over(status) {
        status["phase"] = json!("Failed");
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) {
                condition["reason"] = json!("PodFailed");
                condition.as_object_mut().map(|condition| condition.remove("message"));
                condition["status"] = json!("False");
            }
        }
    }
}

/// Returns true if a container runs, or did.
fn was_started(container: &Value) -> bool {
    container["state"].get("waiting").is_none() || container["lastState"].get("terminated").is_some()
}

/// Returns true if the pod's normal containers may start: one was started, or the last init container succeeded or, as a
/// sidecar, started.
fn is_initialised(status: &Value) -> bool {
    let has_succeeded = |state: &Value| state["terminated"]["exitCode"] == 0;
    let is_done = |last: &Value| {
        has_succeeded(&last["state"])
            || has_succeeded(&last["lastState"])
            || (last["state"].get("running").is_some() && last["started"] == true && last["ready"] == true)
    };
    let init = list(status, "initContainerStatuses");
    init.last().is_none_or(is_done) || list(status, "containerStatuses").iter().any(was_started)
}

/// Fails if a container that ended for good would run again.
fn check_containers(old: &Value, new: &Value, policy: &str) -> Result<(), Backwards> {
    if policy == "Always" {
        return Ok(());
    }
    for field in ["containerStatuses", "initContainerStatuses"] {
        for before in list(old, field) {
            let Some(end) = before["state"].get("terminated") else { continue };
            let failed = end["exitCode"].as_i64().unwrap_or(0) != 0;
            // An init container runs again in another sandbox, however it ended.
            let may_restart = (policy == "OnFailure" && failed) || field == "initContainerStatuses";
            let after = list(new, field).iter().find(|container| container["name"] == before["name"]);
            if !may_restart && after.is_some_and(|after| after["state"].get("terminated").is_none()) {
                return Err(Backwards::Container(before["name"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    Ok(())
}

/// Sets the readiness of a pod: all its containers are ready and every gate is open.
fn check_gates(new: &mut Value, old: &Value, gates: &[String]) {
    let condition = |status: &Value, kind: &str| {
        list(status, "conditions").iter().find(|condition| condition["type"] == kind).cloned()
    };
    let is_true = |condition: &Value| condition["status"] == "True";
    if gates.is_empty() || !condition(new, "Ready").as_ref().is_some_and(is_true) {
        return;
    }
    let closed: Vec<String> = gates
        .iter()
        .filter_map(|gate| match condition(old, gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(open) if is_true(&open) => None,
            Some(closed) => {
                let status = closed["status"].as_str().unwrap_or_default();
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
        })
        .collect();
    if closed.is_empty() {
        return;
    }
    let message = match closed.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    };
    for ready in new["conditions"].as_array_mut().into_iter().flatten().filter(|c| c["type"] == "Ready") {
        ready["status"] = json!("False");
        ready["reason"] = json!("ReadinessGatesNotReady");
        ready["message"] = json!(message);
    }
}

/// Keeps the times of unchanged conditions, and the start of the pod.
fn keep_times(new: &mut Value, old: &Value) {
    if let Some(start) = old.get("startTime") {
        new["startTime"] = start.clone();
    }
    for condition in new["conditions"].as_array_mut().into_iter().flatten() {
        let same = list(old, "conditions")
            .iter()
            .find(|before| before["type"] == condition["type"] && before["status"] == condition["status"]);
        let Some(time) = same.and_then(|before| before.get("lastTransitionTime")) else { continue };
        condition["lastTransitionTime"] = time.clone();
    }
}

/// Returns the conditions of a status that other writers own.
#[cfg(test)]
fn foreign(status: &Value) -> Vec<&serde_json::Map<String, Value>> {
    const OURS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let all = list(status, "conditions").iter().filter_map(Value::as_object);
    all.filter(|condition| !OURS.iter().any(|ours| condition["type"] == **ours)).collect()
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
