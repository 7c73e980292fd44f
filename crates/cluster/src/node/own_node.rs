//! [`OwnNode`]: the own Node as the API server has it, from the only watch of it. Every part of this node that depends on its
//! Node reads it from this cache: the keeper, the admission of pods, mirror pods. Called by [`super::NodeKeeper`], made by the
//! binary.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::ClusterClient;
use crate::watch::{Selected, Selection, follow, is_newer};

/// The own Node; absent until this node is registered, and after it was deleted. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct OwnNode(watch::Sender<Selected>);

impl OwnNode {
    /// Returns a receiver that is notified of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Selected> {
        self.0.subscribe()
    }

    /// Keeps it up to date until `stop`.
    pub(super) async fn keep(&self, client: &ClusterClient, name: &str, stop: &CancellationToken) {
        follow(client, &Selection::node(name), &self.0, stop).await;
    }

    /// Stores the object that the server returned for a write, unless the watch has already delivered a newer one.
    pub(super) fn put(&self, node: &Value) {
        self.0.send_if_modified(|selected| {
            let uid = node["metadata"]["uid"].as_str().unwrap_or_default();
            if selected.objects.get(uid).is_some_and(|known| is_newer(known, node)) {
                return false;
            }
            selected.ready = true;
            selected.objects = [(uid.to_owned(), Arc::new(node.clone()))].into();
            true
        });
    }

    /// Returns the typed object.
    pub(super) fn get(&self) -> Option<Node> {
        read(&self.0.borrow())
    }
}

/// Returns the Node among the selected objects.
pub(super) fn read(selected: &Selected) -> Option<Node> {
    let object = selected.objects.values().next()?;
    match serde_json::from_value(Value::clone(object)) {
        Ok(node) => Some(node),
        Err(error) => {
            tracing::warn!(%error, "the own Node cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_that_is_older_than_the_watch_does_not_count() {
        let node = |uid: &str, version: &str, label: &str| json!({"metadata": {"name": "n", "uid": uid, "resourceVersion": version, "labels": {"l": label}}});
        let own = OwnNode::default();
        assert_eq!(own.get(), None);
        for (uid, version, label, want) in [
            ("u", "9", "first", "first"),
            ("u", "8", "older", "first"),
            ("u", "10", "newer", "newer"),
            ("v", "11", "anew", "anew"),
        ] {
            own.put(&node(uid, version, label));
            assert_eq!(own.get().and_then(|node| node.metadata.labels).expect("labels")["l"], want);
            assert_eq!(own.subscribe().borrow().objects.len(), 1);
        }
        own.put(&json!({"metadata": {"uid": "w", "name": 7}}));
        assert_eq!(own.get(), None, "garbage is no Node");
    }
}
