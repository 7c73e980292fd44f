//! [`Mirrors`]: mirror pods, which show the node's local manifests in `kubectl`. Each belongs to the Node, carries the hash of
//! its manifest, and is replaced when that changes. A mirror pod must not name service accounts, Secrets, ConfigMaps or claims:
//! such parts of a manifest are left out of the mirror, and an annotation lists them. `plan`, a pure function, decides what to
//! create and delete. Called by the node's keeper of pods.

mod spec;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{ClusterClient, Failure, failure, request, text};
use crate::status::delete;
use crate::watch::{Objects, Selected};

/// Annotation of mirror pods: the hash of the manifest.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation of local pods: the hash of the manifest.
const HASH: &str = "kubernetes.io/config.hash";
/// Annotation of mirror pods: the parts of the manifest that a mirror cannot have.
const LEFT_OUT: &str = "imagelet.dev/mirror.left-out";
/// Interval at which all mirrors are compared.
const CHECK: Duration = Duration::from_secs(30);

/// A change of mirror pods.
#[derive(Clone, Debug, PartialEq)]
enum MirrorAction {
    Create(Value),
    /// Deletes the mirror with this uid.
    Delete(Value, String),
}

/// The Node that mirror pods belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MirrorOwner {
    name: String,
    uid: String,
}

/// Keeps mirror pods of local manifests.
pub struct Mirrors {
    client: ClusterClient,
    pods: watch::Receiver<Selected>,
    node: watch::Receiver<Selected>,
    /// Reasons for the last failed changes, by namespace and name of the pod.
    failures: BTreeMap<PodKey, String>,
}

/// Namespace and name of a pod.
type PodKey = (String, String);

fn key(pod: &Value) -> PodKey {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Mirrors {
    /// `pods` are all that the server has for this node, `node` is the Node.
    #[must_use]
    pub fn new(client: ClusterClient, pods: watch::Receiver<Selected>, node: watch::Receiver<Selected>) -> Self {
        Self { client, pods, node, failures: BTreeMap::new() }
    }

    /// Keeps mirrors of `local`, the pods of manifests in Kubernetes' shape, until `stop`. `None`: not all sources have reported.
    pub async fn run(
        mut self,
        local: impl Fn() -> Option<Vec<Value>>,
        mut changes: watch::Receiver<u64>,
        stop: &CancellationToken,
    ) {
        loop {
            changes.mark_unchanged();
            if let Some(local) = local() {
                let acted = stop.run_until_cancelled(self.once(&local)).await;
                if acted.is_none() {
                    return;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK) => {}
                Ok(()) = self.pods.changed() => {}
                Ok(()) = changes.changed() => {}
            }
            // Changes that arrive together are handled together.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn once(&mut self, local: &[Value]) {
        let pods = self.pods.borrow_and_update().clone();
        let owner = self.node.borrow().objects.iter().next().map(|(uid, node)| MirrorOwner {
            name: node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            uid: uid.clone(),
        });
        let (true, Some(owner)) = (pods.ready, owner) else { return };
        let before = std::mem::take(&mut self.failures);
        for action in plan(local, &pods.objects, &owner) {
            let done = match &action {
                MirrorAction::Create(pod) => self.create(pod).await,
                MirrorAction::Delete(pod, uid) => delete(&self.client, pod, uid).await,
            };
            match done {
                Ok(()) => {}
                // It is so already, or another pod of the name is to be deleted first.
                Err(error)
                    if matches!(failure(&error), Failure::AlreadyExists | Failure::NotFound | Failure::Conflict) =>
                {
                    tracing::debug!(%error, "mirror pod is not as expected");
                }
                Err(error) => {
                    let (MirrorAction::Create(pod) | MirrorAction::Delete(pod, _)) = &action;
                    let (key, error) = (key(pod), text(&error));
                    if before.get(&key) == Some(&error) {
                        tracing::debug!(pod = key.1, error, "still cannot change a mirror pod");
                    } else {
                        tracing::warn!(pod = key.1, error, "cannot change a mirror pod, will retry");
                    }
                    self.failures.insert(key, error);
                }
            }
        }
    }

    async fn create(&self, pod: &Value) -> Result<(), kube::Error> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let request = request::post(&format!("/api/v1/namespaces/{namespace}/pods"), pod);
        self.client.current().request::<Value>(request).await.map(drop)
    }
}

/// Returns the changes after which exactly the local pods have mirrors.
fn plan(local: &[Value], objects: &Objects, owner: &MirrorOwner) -> Vec<MirrorAction> {
    let mut wanted: BTreeMap<_, &Value> = local.iter().map(|pod| (key(pod), pod)).collect();
    let mut actions = Vec::new();
    for (uid, object) in objects {
        let hash = &object["metadata"]["annotations"][MIRROR];
        let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
        if hash.is_null() {
            // A pod of the server that has the name: there can be no mirror.
            wanted.remove(&key(object));
            continue;
        }
        let owned = object["metadata"]["ownerReferences"].as_array();
        let is_ours = owned.is_none_or(|owners| owners.iter().all(|other| other["uid"] == owner.uid));
        let pod = wanted.remove(&key(object));
        match pod {
            Some(pod) if !is_deleted && is_ours && pod["metadata"]["annotations"][HASH] == *hash => {}
            pod => {
                actions.push(MirrorAction::Delete(Value::clone(object), uid.clone()));
                actions.extend(pod.map(|pod| MirrorAction::Create(mirror_of(pod, owner))));
            }
        }
    }
    actions.extend(wanted.into_values().map(|pod| MirrorAction::Create(mirror_of(pod, owner))));
    actions
}

/// Returns the mirror of a local pod.
fn mirror_of(pod: &Value, owner: &MirrorOwner) -> Value {
    let mut mirror = pod.clone();
    let left_out = spec::leave_out(&mut mirror["spec"]);
    let Some(metadata) = mirror["metadata"].as_object_mut() else { return mirror };
    for field in ["uid", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid, "controller": true}]),
    );
    let annotations = &mut mirror["metadata"]["annotations"];
    annotations[MIRROR] = annotations[HASH].clone();
    if !left_out.is_empty() {
        annotations[LEFT_OUT] = json!(left_out.join(","));
    }
    if let Some(object) = mirror.as_object_mut() {
        object.remove("status");
    }
    mirror
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
