//! [`PodBoard`]: what an agent that runs pods tells of them, in Kubernetes' shapes. Decides nothing. Made by `node`; called by
//! `super::pod_routes` and `super::state`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kuberuntime::Phase;
use kuberuntime::sources::DesiredPods;
use kuberuntime::workers::{PodAgent, PodView, WorkerState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::node::events::{EventBook, RecordedEvent};

/// The state of pods and events that the routes answer from.
#[derive(Clone)]
pub struct PodBoard {
    pub agent: Arc<PodAgent>,
    pub desired: watch::Receiver<DesiredPods>,
    pub events: Arc<EventBook>,
    pub node: NodeInfo,
}

/// The node as its agent describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The name of the node.
    pub node_name: String,
    /// Where its pods run.
    pub runtime_endpoint: String,
    /// Where their logs are.
    pub pod_logs: String,
    /// Process that keeps them.
    pub pid: u32,
}

/// How the sync of a pod goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncState {
    /// Where the pod is on its way.
    pub state: String,
    /// The actions of the last sync, in words.
    pub actions: String,
    /// The error of the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The answer to `GET /pods`: pods in Kubernetes' shape, and the manifests that were refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodList {
    pub items: Vec<Value>,
    pub refused: Vec<RefusedPod>,
}

/// A manifest that was refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RefusedPod {
    pub origin: String,
    pub pod: Option<String>,
    pub reason: String,
}

impl PodBoard {
    /// Fails with the reason while the node does not keep its pods as they should be.
    pub fn healthy(&self) -> Result<(), String> {
        self.agent.healthy()
    }

    /// Waits until it is known which pods there are, for `patience` at most.
    pub(super) async fn known(&self, patience: Duration) -> Result<(), String> {
        if tokio::time::timeout(patience, self.agent.until_known()).await.is_ok() {
            return Ok(());
        }
        let why = self.agent.healthy().err().unwrap_or_else(|| "their first sync goes on".to_owned());
        Err(format!("it is not known yet which pods run: {why}"))
    }

    /// The pods as a PodList, with the manifests that were refused.
    pub fn list(&self) -> Value {
        let desired = self.desired.borrow().clone();
        let items: Vec<Value> = self.agent.pods().iter().map(|view| pod(view, &desired)).collect();
        let refused: Vec<Value> = desired
            .refused
            .iter()
            .map(|refused| json!({"origin": refused.origin, "pod": refused.pod, "reason": refused.reason}))
            .collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items, "refused": refused})
    }

    pub(super) fn one(&self, namespace: &str, name: &str) -> Option<Value> {
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

    pub(super) fn events_since(&self, number: u64) -> Value {
        let entries = self.events.since(number);
        let last = entries.last().map_or(number, |entry| entry.number);
        let items: Vec<Value> = entries.iter().map(|entry| event(entry, &self.node.node_name)).collect();
        json!({"apiVersion": "v1", "kind": "EventList", "metadata": {"resourceVersion": last.to_string()}, "items": items})
    }
}

/// A pod in Kubernetes' shape.
pub fn pod(view: &PodView, desired: &DesiredPods) -> Value {
    let mut object = view.pod.to_json();
    let metadata = &mut object["metadata"];
    metadata["creationTimestamp"] = json!(seconds(view.status.start_time));
    let over = matches!(view.status.phase, Phase::Succeeded | Phase::Failed);
    let ending = matches!(view.state, WorkerState::Terminating | WorkerState::Terminated);
    // Nobody wants it any more; since when is not of interest to anybody.
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

/// An event in Kubernetes' shape.
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

/// A time as Kubernetes writes it.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
