//! Reads the status of a pod as an API server remembers it, so that a new process continues the pod: it keeps its start
//! time, its counts of restarts, and its end. What cannot be read counts as absent. Called by the sources.

use jiff::Timestamp;
use serde_json::Value;

use super::api::{
    ContainerState, ContainerStatus, Phase, PodCondition, PodIp, PodStatus, Running, Terminated, Waiting,
};
use super::conditions::KINDS;
use crate::pod::Pod;
use crate::qos::qos_class;

impl PodStatus {
    /// Reads the status of `pod`; `None` if no node has begun with it. One that ended without a start time has that of
    /// its object, `created`.
    pub(crate) fn from_json(status: &Value, pod: &Pod, created: Timestamp) -> Option<Self> {
        let phase = match status["phase"].as_str()? {
            "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            _ => return None,
        };
        let is_over = matches!(phase, Phase::Succeeded | Phase::Failed);
        let start_time = time(&status["startTime"]).or(is_over.then_some(created))?;
        let ips = |name: &str| list(&status[name]).iter().map(|ip| PodIp { ip: text(&ip["ip"]) }).collect();
        let containers = |name: &str| list(&status[name]).iter().filter_map(container).collect();
        Some(Self {
            phase,
            conditions: list(&status["conditions"]).iter().filter_map(condition).collect(),
            message: text(&status["message"]),
            reason: text(&status["reason"]),
            host_ip: text(&status["hostIP"]),
            host_ips: ips("hostIPs"),
            pod_ip: text(&status["podIP"]),
            pod_ips: ips("podIPs"),
            start_time,
            init_container_statuses: containers("initContainerStatuses"),
            container_statuses: containers("containerStatuses"),
            ephemeral_container_statuses: containers("ephemeralContainerStatuses"),
            qos_class: qos_class(pod),
        })
    }

    /// Returns the status of a pod that failed before anything of it ran.
    pub(crate) fn failed(pod: &Pod, reason: String, message: String, start_time: Timestamp) -> Self {
        Self {
            phase: Phase::Failed,
            conditions: Vec::new(),
            message,
            reason,
            host_ip: String::new(),
            host_ips: Vec::new(),
            pod_ip: String::new(),
            pod_ips: Vec::new(),
            start_time: super::api::whole_seconds(start_time),
            init_container_statuses: Vec::new(),
            container_statuses: Vec::new(),
            ephemeral_container_statuses: Vec::new(),
            qos_class: qos_class(pod),
        }
    }

    /// Returns true if the pod has succeeded or failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Reads a condition of the kubelet's; this program does not report others.
fn condition(value: &Value) -> Option<PodCondition> {
    let kind = KINDS.into_iter().find(|kind| value["type"] == **kind)?;
    Some(PodCondition {
        kind,
        status: if value["status"] == "True" { "True" } else { "False" },
        last_transition_time: time(&value["lastTransitionTime"])?,
        reason: text(&value["reason"]),
        message: text(&value["message"]),
    })
}

fn container(value: &Value) -> Option<ContainerStatus> {
    let state = &value["state"];
    let state = match (&state["running"], terminated(&state["terminated"])) {
        (_, Some(terminated)) => ContainerState::Terminated(terminated),
        (running, None) if running.is_object() => {
            ContainerState::Running(Running { started_at: time(&running["startedAt"]) })
        }
        _ => {
            let waiting = &state["waiting"];
            ContainerState::Waiting(Waiting { reason: text(&waiting["reason"]), message: text(&waiting["message"]) })
        }
    };
    Some(ContainerStatus {
        name: value["name"].as_str()?.to_owned(),
        state,
        last_state: terminated(&value["lastState"]["terminated"]),
        ready: value["ready"].as_bool().unwrap_or(false),
        restart_count: value["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        image: text(&value["image"]),
        image_id: text(&value["imageID"]),
        container_id: text(&value["containerID"]),
        started: value["started"].as_bool(),
    })
}

fn terminated(value: &Value) -> Option<Terminated> {
    value.as_object()?;
    Some(Terminated {
        exit_code: value["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(0),
        reason: text(&value["reason"]),
        message: text(&value["message"]),
        started_at: time(&value["startedAt"]),
        finished_at: time(&value["finishedAt"]),
        container_id: text(&value["containerID"]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let created: Timestamp = "2026-11-23T10:00:00Z".parse().expect("a time");
        let status = json!({
            "phase": "Running", "startTime": "2026-11-23T10:00:01Z", "qosClass": "BestEffort",
            "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}], "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady",
                            "lastTransitionTime": "2026-11-23T10:00:02Z"}],
            "containerStatuses": [{
                "name": "a", "ready": false, "restartCount": 3, "image": "x:1", "imageID": "sha256:1",
                "containerID": "containerd://c", "started": true, "state": {"running": {"startedAt": "2026-11-23T10:00:03Z"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": null, "finishedAt": null}},
            }],
        });
        let read = PodStatus::from_json(&status, &Pod::default(), created).expect("read");
        assert_eq!(serde_json::to_value(&read).expect("written"), status);
        assert!(!read.is_over());
    }

    #[test]
    fn a_pod_that_no_node_began_with_has_none() {
        let created = Timestamp::UNIX_EPOCH;
        for (status, want) in [
            (json!({}), None),
            (json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}), None),
            (json!({"phase": "Odd", "startTime": "2026-11-23T10:00:01Z"}), None),
            (json!({"phase": "Failed", "reason": "Evicted"}), Some(Phase::Failed)),
        ] {
            let read = PodStatus::from_json(&status, &Pod::default(), created);
            assert_eq!(read.as_ref().map(|status| status.phase), want, "{status}");
            assert!(read.is_none_or(|status| status.is_over() && status.start_time == created));
        }
    }
}
