//! An observer of pods that asks neither imagelet nor the API server: every revision of every pod as etcd has it, also while the
//! server is down. [`step`] finds statuses that go backwards. Called by the tests of faults of a cluster.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::process::Daemon;

/// All that etcd has had of pods since the beginning.
pub(crate) struct PodHistory {
    watch: Daemon,
    /// Lines of the watch that were read.
    read: usize,
    /// The last revision of each pod, by uid.
    latest: BTreeMap<String, Value>,
    /// Revisions that were seen.
    pub(crate) revisions: usize,
    wrong: Vec<String>,
}

impl PodHistory {
    /// Starts to watch.
    #[track_caller]
    pub(crate) fn follow(plane: &ControlPlane) -> Self {
        let watch = plane.watch_etcd("/registry/pods/");
        Self { watch, read: 0, latest: BTreeMap::new(), revisions: 0, wrong: Vec::new() }
    }

    /// Reads the revisions since the last call.
    #[track_caller]
    fn catch_up(&mut self) {
        let lines = self.watch.lines_after(self.read);
        self.read += lines.len();
        for line in lines {
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("a watch of etcd: {e}: {line}"));
            let result = &message["result"];
            assert!(result["canceled"] != true && message["error"].is_null(), "etcd ended the watch: {line}");
            for event in result["events"].as_array().into_iter().flatten() {
                // A deleted key has no value.
                let Some(value) = event["kv"]["value"].as_str() else { continue };
                let bytes = STANDARD.decode(value).expect("etcd writes base64");
                self.see(serde_json::from_slice(&bytes).expect("the API server keeps JSON"));
            }
        }
    }

    fn see(&mut self, pod: Value) {
        self.revisions += 1;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let before = self.latest.get(&uid);
        self.wrong.extend(step(before, &pod).into_iter().map(|what| format!("{name} ({uid}): {what}")));
        self.latest.insert(uid, pod);
    }

    /// Asserts that no status has gone backwards so far.
    #[track_caller]
    pub(crate) fn is_sound(&mut self, context: &str) {
        self.catch_up();
        assert!(self.wrong.is_empty(), "{context}: statuses of pods are wrong:\n{}", self.wrong.join("\n"));
    }

    /// The last revision of each pod, by uid.
    #[track_caller]
    pub(crate) fn latest(&mut self) -> &BTreeMap<String, Value> {
        self.catch_up();
        &self.latest
    }
}

/// Everything that is wrong with a revision of a pod after the one before it.
fn step(before: Option<&Value>, now: &Value) -> Vec<String> {
    let mut wrong = inconsistent(now);
    let Some(before) = before else { return wrong };
    let phase = |pod: &Value| pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let (from, to) = (phase(before), phase(now));
    if from != to && (is_final(&from) || to == "Pending") {
        wrong.push(format!("phase {from} became {to}"));
    }
    let mut constant = |what: &str, from: &Value, to: &Value| {
        if !from.is_null() && from != to {
            wrong.push(format!("{what} {from} became {to}"));
        }
    };
    constant("startTime", &before["status"]["startTime"], &now["status"]["startTime"]);
    if !before["metadata"]["deletionTimestamp"].is_null() && now["metadata"]["deletionTimestamp"].is_null() {
        wrong.push("it is not deleted any more".to_owned());
    }
    for (name, was) in containers(before) {
        let Some(is) = containers(now).into_iter().find(|(other, _)| *other == name).map(|(_, is)| is) else {
            wrong.push(format!("{name} has no status any more"));
            continue;
        };
        let count = |status: &Value| status["restartCount"].as_u64().unwrap_or_default();
        let id = |status: &Value| status["containerID"].as_str().unwrap_or_default().to_owned();
        if count(is) < count(was) {
            wrong.push(format!("restartCount of {name} fell from {} to {}", count(was), count(is)));
        }
        let (old, new) = (id(was), id(is));
        // One that was created and not started gives its number back when it is removed: no run is lost from the count.
        let has_run = was["state"]["waiting"].is_null() || was["lastState"]["terminated"]["containerID"] == old;
        if !old.is_empty() && old != new && has_run && count(was) == count(is) {
            wrong.push(format!("{name} is another container with the same restartCount {}", count(is)));
        }
        let over = |status: &Value| !status["state"]["terminated"].is_null();
        if over(was) && !over(is) && old == new && is["state"]["waiting"].is_null() {
            wrong.push(format!("{name} had ended and runs"));
        }
    }
    wrong
}

/// Contradictions within a single status.
fn inconsistent(pod: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = &pod["status"];
    let phase = status["phase"].as_str().unwrap_or_default();
    let is_true = |kind: &str| {
        let conditions = status["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    if is_true("Ready") && !is_true("ContainersReady") {
        wrong.push("Ready without ContainersReady".to_owned());
    }
    if is_true("Ready") && phase != "Running" {
        wrong.push(format!("Ready in phase {phase}"));
    }
    let main = status["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    if is_true("ContainersReady") && (main.is_empty() || main.iter().any(|container| container["ready"] != true)) {
        wrong.push("ContainersReady, and a container is not".to_owned());
    }
    if is_final(phase) {
        let running = containers(pod).into_iter().filter(|(_, container)| !container["state"]["running"].is_null());
        wrong.extend(running.map(|(name, _)| format!("{name} runs in phase {phase}")));
    }
    wrong
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Names and statuses of all containers.
fn containers(pod: &Value) -> Vec<(&str, &Value)> {
    let kinds = ["initContainerStatuses", "containerStatuses"];
    let all = kinds.iter().filter_map(|kind| pod["status"][*kind].as_array()).flatten();
    all.map(|status| (status["name"].as_str().unwrap_or_default(), status)).collect()
}

mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, count: u64, id: &str, state: &str) -> Value {
        json!({"metadata": {}, "status": {"phase": phase, "startTime": "t", "containerStatuses": [
            {"name": "c", "restartCount": count, "containerID": id, "ready": state == "running", "state": {state: {}}}]}})
    }

    fn with(mut pod: Value, condition: &str) -> Value {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let more = json!({"type": condition, "status": "True"});
        pod["status"]["conditions"] = conditions.into_iter().chain([more]).collect();
        pod
    }

    #[test]
    fn status_that_moves_backwards_is_detected() {
        let running = || pod("Running", 1, "b", "running");
        let ready = || with(with(running(), "Ready"), "ContainersReady");
        let mut deleted = running();
        deleted["metadata"]["deletionTimestamp"] = json!("t");
        let mut later = running();
        later["status"]["startTime"] = json!("u");
        let created = pod("Pending", 0, "a", "waiting");
        let mut crashed = pod("Running", 0, "a", "waiting");
        crashed["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"containerID": "a"}});
        let none = json!({"metadata": {}, "status": {"phase": "Running", "startTime": "t"}});
        let cases = [
            (json!({"status": {"phase": "Pending"}}), running(), ""),
            (running(), pod("Running", 2, "c", "running"), ""),
            (running(), pod("Succeeded", 1, "b", "terminated"), ""),
            (running(), ready(), ""),
            (running(), deleted.clone(), ""),
            (deleted, running(), "not deleted any more"),
            (running(), later, "startTime"),
            (running(), pod("Running", 0, "b", "running"), "restartCount of c fell from 1 to 0"),
            (running(), pod("Running", 1, "c", "running"), "another container with the same restartCount 1"),
            (created, pod("Running", 0, "b", "running"), ""),
            (crashed.clone(), pod("Running", 1, "b", "running"), ""),
            (crashed, pod("Running", 0, "b", "running"), "another container with the same restartCount 0"),
            (pod("Running", 1, "b", "terminated"), running(), "c had ended and runs"),
            (pod("Succeeded", 1, "b", "terminated"), pod("Failed", 1, "b", "terminated"), "Succeeded became Failed"),
            (running(), pod("Pending", 1, "b", "running"), "Running became Pending"),
            (running(), none, "c has no status any more"),
            (running(), with(running(), "Ready"), "Ready without ContainersReady"),
            (running(), with(pod("Running", 1, "b", "terminated"), "ContainersReady"), "and a container is not"),
            (running(), pod("Failed", 1, "b", "running"), "c runs in phase Failed"),
        ];
        for (before, now, want) in cases {
            let wrong = step(Some(&before), &now).join("; ");
            assert!(if want.is_empty() { wrong.is_empty() } else { wrong.contains(want) }, "{want:?}: {wrong:?}");
        }
    }
}
