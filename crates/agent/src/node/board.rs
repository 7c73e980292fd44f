//! [`PodBoard`]: the pods of an agent that runs pods, in Kubernetes' shapes. Decides nothing. Made by `node`; called by
//! the routes of the admin endpoint and by the status page.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kuberuntime::Phase;
use kuberuntime::sources::{DesiredPods, RefusedManifest};
use kuberuntime::workers::{PodAgent, PodView, WorkerState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::events::{EventLog, RecordedEvent};

/// The state of pods and events that the routes answer from.
#[derive(Clone)]
pub struct PodBoard {
    pub(crate) agent: Arc<PodAgent>,
    pub(crate) desired: watch::Receiver<DesiredPods>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) node: NodeInfo,
}

/// Node information of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The name of the node.
    pub node_name: String,
    /// Endpoint of the container runtime.
    pub runtime_endpoint: String,
    /// Directory of the pods' logs.
    pub pod_logs: String,
    /// Process ID of the agent.
    pub pid: u32,
}

/// State of a pod's sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncState {
    /// State of the pod worker.
    pub state: String,
    /// Actions of the last sync, in words.
    pub actions: String,
    /// The error of the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Response of `GET /v1/pods/{namespace}/{name}`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct PodDetail {
    /// The pod as a Kubernetes Pod.
    pub pod: Value,
    /// State of the pod's sync.
    pub sync: SyncState,
}

/// Response of `GET /v1/events`: a Kubernetes EventList.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EventList {
    /// `v1`.
    pub api_version: String,
    /// `EventList`.
    pub kind: String,
    /// List metadata; `resourceVersion` is the number of the last event.
    pub metadata: Value,
    /// Events, the most recent last.
    pub items: Vec<Value>,
}

/// Response of `GET /v1/pods`: a Kubernetes PodList, and the refused manifests.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodList {
    /// `v1`.
    pub api_version: String,
    /// `PodList`.
    pub kind: String,
    /// Always an empty object.
    pub metadata: Value,
    /// Pods with their status. Callers that may not change state get a part of the fields.
    pub items: Vec<Value>,
    /// Refused manifests, and skipped objects. A pod of an earlier version of the manifest may keep running.
    pub refused: Vec<RefusedPod>,
}

/// A refused manifest.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RefusedPod {
    /// Path or URL of the manifest.
    pub origin: String,
    /// `NAMESPACE/NAME` of the pod, if known.
    pub pod: Option<String>,
    /// Reason for the refusal; omitted for callers that may not change state.
    pub reason: String,
    /// True for objects of kinds that do not run on a node, such as a Deployment: they are skipped, and nothing is wrong with them.
    pub skipped: bool,
}

impl PodBoard {
    /// Fails with the reason while the node does not keep its pods as they should be.
    pub fn healthy(&self) -> Result<(), String> {
        self.agent.healthy()
    }

    /// Waits until it is known which pods there are, for `patience` at most.
    pub(crate) async fn known(&self, patience: Duration) -> Result<(), String> {
        if tokio::time::timeout(patience, self.agent.until_known()).await.is_ok() {
            return Ok(());
        }
        let why = self.agent.healthy().err().unwrap_or_else(|| "their first sync goes on".to_owned());
        Err(format!("it is not known yet which pods run: {why}"))
    }

    /// Returns the pods as a PodList, with the manifests that were refused.
    pub fn list(&self) -> Value {
        let desired = self.desired.borrow().clone();
        let items: Vec<Value> = self.agent.pods().iter().map(|view| pod(view, &desired)).collect();
        let refused: Vec<Value> = desired
            .refused
            .iter()
            .map(|refused| {
                let RefusedManifest { origin, pod, reason, skipped } = refused;
                json!({"origin": origin, "pod": pod, "reason": reason, "skipped": skipped})
            })
            .collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items, "refused": refused})
    }

    pub(crate) fn one(&self, namespace: &str, name: &str) -> Option<Value> {
        let views = self.agent.pods();
        let named = |view: &&Arc<PodView>| view.pod.metadata.namespace == namespace && view.pod.metadata.name == name;
        // While an earlier pod of the name is being ended, the one that is wanted is the one that is meant.
        let desired = self.desired.borrow().clone();
        let wanted = |view: &&Arc<PodView>| desired.pods.contains_key(&view.pod.metadata.uid);
        let view = views.iter().filter(named).find(wanted).or_else(|| views.iter().find(named))?;
        let sync = SyncState {
            state: view.state.as_str().to_owned(),
            actions: view.actions.clone(),
            error: view.error.clone(),
        };
        Some(json!({"pod": pod(view, &desired), "sync": sync}))
    }

    pub(crate) fn events_since(&self, number: u64) -> Value {
        let entries = self.events.since(number);
        let last = entries.last().map_or(number, |entry| entry.number);
        let items: Vec<Value> = entries.iter().map(|entry| event(entry, &self.node.node_name)).collect();
        json!({"apiVersion": "v1", "kind": "EventList", "metadata": {"resourceVersion": last.to_string()}, "items": items})
    }
}

/// Returns a pod as a Kubernetes object.
pub fn pod(view: &PodView, desired: &DesiredPods) -> Value {
    let mut object = view.pod.to_json();
    let metadata = &mut object["metadata"];
    metadata["creationTimestamp"] = json!(seconds(view.status.start_time));
    let over = matches!(view.status.phase, Phase::Succeeded | Phase::Failed);
    let ending = matches!(view.state, WorkerState::Terminating | WorkerState::Terminated);
    // The pod is not desired any more. No source has the time of its removal, so the deletion time is now.
    if ending
        && !over
        && !desired.pods.contains_key(&view.pod.metadata.uid)
        && metadata.get("deletionTimestamp").is_none()
    {
        metadata["deletionTimestamp"] = json!(seconds(Timestamp::now()));
    }
    object["status"] = json!(view.status);
    object
}

/// Returns a PodList with only the identities and states of pods: environments, arguments, annotations and
/// probes may contain secrets, and so may messages of containers.
pub(crate) fn without_secrets(list: &Value) -> Value {
    let keep = |object: &Value, names: &[&str]| -> Value {
        let members = names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(name)?.clone())));
        Value::Object(members.collect())
    };
    let all = |object: &Value, name: &str, names: &[&str]| -> Value {
        object[name].as_array().into_iter().flatten().map(|one| keep(one, names)).collect()
    };
    let pod = |pod: &Value| {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let mut shown_spec = keep(spec, &["nodeName", "restartPolicy", "priority", "runtimeClassName", "hostNetwork"]);
        let mut shown_status = keep(status, &["phase", "reason", "startTime", "podIP", "podIPs", "hostIP", "qosClass"]);
        shown_status["conditions"] =
            all(status, "conditions", &["type", "status", "reason", "lastTransitionTime", "lastProbeTime"]);
        for name in ["containers", "initContainers"] {
            if spec.get(name).is_some() {
                shown_spec[name] = all(spec, name, &["name", "image", "imagePullPolicy"]);
            }
        }
        for name in ["containerStatuses", "initContainerStatuses"] {
            if status.get(name).is_some() {
                let names = ["name", "image", "imageID", "containerID", "ready", "started", "restartCount"];
                shown_status[name] = all(status, name, &names);
                let states =
                    status[name].as_array().into_iter().flatten().map(|one| state_without_messages(&one["state"]));
                for (shown, state) in shown_status[name].as_array_mut().into_iter().flatten().zip(states) {
                    shown["state"] = state;
                }
            }
        }
        json!({
            "apiVersion": pod["apiVersion"],
            "kind": pod["kind"],
            "metadata": keep(&pod["metadata"], &["name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp"]),
            "spec": shown_spec,
            "status": shown_status,
        })
    };
    let items: Vec<Value> = list["items"].as_array().into_iter().flatten().map(pod).collect();
    // Reasons of refusals name fields and their values.
    let refused = all(list, "refused", &["origin", "pod", "skipped"]);
    let refused: Vec<Value> = refused
        .as_array()
        .into_iter()
        .flatten()
        .map(
            |one| json!({"origin": one["origin"], "pod": one["pod"], "skipped": one["skipped"], "reason": "shown to those who may change things"}),
        )
        .collect();
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items, "refused": refused})
}

/// Returns the state of a container without its messages.
fn state_without_messages(state: &Value) -> Value {
    let of = |(name, state): (&String, &Value)| {
        let mut state = state.clone();
        if let Some(members) = state.as_object_mut() {
            members.remove("message");
        }
        (name.clone(), state)
    };
    Value::Object(state.as_object().into_iter().flatten().map(of).collect())
}

/// Returns an event as a Kubernetes object.
fn event(entry: &RecordedEvent, node: &str) -> Value {
    let event = &entry.event;
    let object = &event.object;
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{:x}", object.name, entry.id),
            "namespace": object.namespace,
            "resourceVersion": entry.number.to_string(),
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": if object.namespace.is_empty() { "Node" } else { "Pod" },
            "namespace": object.namespace,
            "name": object.name,
            "uid": object.uid,
            "fieldPath": object.field_path,
        },
        "type": event.kind.as_str(),
        "reason": event.reason,
        "message": event.message,
        "count": entry.count,
        "firstTimestamp": seconds(entry.first),
        "lastTimestamp": seconds(entry.last),
        "source": {"component": "imagelet", "host": node},
    })
}

/// Formats a time like Kubernetes.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
