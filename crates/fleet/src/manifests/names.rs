//! Names and metadata that the objects of an installation share. Pure.

use serde_json::{Value, json};

/// Namespace of the fleet: workloads, Lease and pull secrets.
pub const NAMESPACE: &str = "imagelet-fleet";
/// Service account of the controller.
pub(super) const CONTROLLER: &str = "imagelet-fleet-controller";
/// Service account of the DaemonSet.
pub(super) const NODE: &str = "imagelet-fleet-node";
/// Image of the workloads. Kustomize replaces it.
pub(super) const IMAGE: &str = concat!("localhost/imagelet:", env!("CARGO_PKG_VERSION"));

/// Returns the metadata of an object of the namespace.
pub(super) fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": labels()})
}

/// Returns the metadata of an object without a namespace.
pub(super) fn cluster_metadata(name: &str) -> Value {
    json!({"name": name, "labels": labels()})
}

fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "imagelet-fleet"})
}
