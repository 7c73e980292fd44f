//! Registration: the Node object is created, or the one that exists is reconciled as the kubelet does, once per process. Refuses a
//! name that another machine uses: [`super::lease`]. Called by [`super::NodeKeeper`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::labels;
use super::options::{INSTANCE, NodeOptions};
use crate::client::{ClusterClient, Failure, failure, within};

/// The annotation by which controllers know that they attach volumes, as for every kubelet.
const ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Returns the Node for its creation.
pub(super) fn initial_node(options: &NodeOptions, status: NodeStatus) -> Node {
    let taint = |taint: &super::Taint| k8s_openapi::api::core::v1::Taint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: None,
    };
    let taints: Vec<_> = options.taints.iter().map(taint).collect();
    let annotations = [(ATTACH, "true"), (INSTANCE, &options.instance)];
    Node {
        metadata: ObjectMeta {
            name: Some(options.identity.name.clone()),
            labels: Some(labels::initial(&options.identity.hostname, &options.labels)),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!taints.is_empty()).then_some(taints),
            provider_id: options.provider_id.clone(),
            ..NodeSpec::default()
        }),
        status: Some(status),
    }
}

/// A registered Node. `created`: it was made just now.
pub(super) struct Registered {
    pub(super) node: Node,
    pub(super) created: bool,
}

/// Tries once to create the Node, or to find it.
pub(super) async fn register(client: &ClusterClient, node: &Node) -> Result<Registered, kube::Error> {
    let api: Api<Node> = Api::all(client.current());
    match within(api.create(&PostParams::default(), node)).await {
        Ok(node) => Ok(Registered { node, created: true }),
        Err(error) if failure(&error) == Failure::AlreadyExists => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            Ok(Registered { node: within(api.get(name)).await?, created: false })
        }
        // Some servers forbid the creation of an existing Node.
        Err(error) if failure(&error) == Failure::Forbidden => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            match within(api.get_opt(name)).await? {
                Some(node) => Ok(Registered { node, created: false }),
                None => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns the changes to metadata by which an existing Node becomes ours, or `None` if there are none.
pub(super) fn reconcile(initial: &Node, there: &Node) -> Option<serde_json::Value> {
    let empty = BTreeMap::new();
    let labels_of = |node: &'_ Node| node.metadata.labels.clone().unwrap_or_default();
    let labels = labels::missing(&labels_of(initial), &labels_of(there));
    let old = there.metadata.annotations.as_ref().unwrap_or(&empty);
    let annotations: BTreeMap<&String, &String> =
        initial.metadata.annotations.iter().flatten().filter(|(key, value)| old.get(*key) != Some(value)).collect();
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    Some(json!({"metadata": {"uid": there.metadata.uid, "labels": labels, "annotations": annotations}}))
}

/// Makes a Node that exists ours.
pub(super) async fn adopt(client: &ClusterClient, initial: &Node, there: Node) -> Result<Node, kube::Error> {
    let given = |node: &'_ Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    if let (Some(wanted), there) = (given(initial), given(&there))
        && there.as_ref() != Some(&wanted)
    {
        tracing::warn!(wanted, there, "the Node has another providerID, which is set at its creation only");
    }
    let Some(patch) = reconcile(initial, &there) else {
        return Ok(there);
    };
    let name = there.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Node> = Api::all(client.current());
    within(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
