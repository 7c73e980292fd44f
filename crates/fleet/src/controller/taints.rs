//! Removes the startup taint of nodes that have the images which they need first, or whose deadline passed. Called by [`super::pass`].

use cluster::ClusterClient;
use cluster::client::{Failure, failure, text, within};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::events::{Notice, about_node, publish};
use super::objects::NodeFacts;
use super::options::ControllerOptions;
use crate::api::STARTUP_TAINT;
use crate::taint::TaintStep;

/// Carries out the step for a node.
pub(super) async fn apply(
    client: &ClusterClient,
    options: &ControllerOptions,
    node: &NodeFacts,
    taints: &[Value],
    step: TaintStep,
) {
    let missing = match step {
        TaintStep::Keep => return,
        TaintStep::Remove => None,
        TaintStep::RemoveLate(missing) => Some(missing),
    };
    let name = node.name();
    let left: Vec<&Value> = taints.iter().filter(|taint| taint["key"] != STARTUP_TAINT).collect();
    // The version makes sure that no taint of another writer is lost.
    let patch = json!({"metadata": {"resourceVersion": node.version, "uid": node.uid}, "spec": {"taints": left}});
    let api: Api<Node> = Api::all(client.current());
    match within(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await {
        Ok(_) => {}
        Err(error) if matches!(failure(&error), Failure::Conflict | Failure::NotFound) => return,
        Err(error) => {
            options.metrics.write_failed("Node");
            tracing::warn!(node = name, error = text(&error), "the startup taint cannot be removed");
            return;
        }
    }
    match missing {
        None => tracing::info!(node = name, "startup taint removed: the required images are present"),
        Some(missing) => {
            let sets = missing.join(", ");
            let note = format!("startup taint removed after the deadline, without the images of {sets}");
            tracing::warn!(node = name, sets, "startup taint removed after the deadline");
            let reason = "ImagesNotReady";
            publish(
                client,
                &options.identity,
                Notice { about: about_node(name), is_warning: true, reason, note: &note },
            )
            .await;
        }
    }
}
