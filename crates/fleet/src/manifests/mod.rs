//! The objects that install a fleet, as files of a kustomize base: kinds, rights, admission policies, and the workloads. Pure. The
//! binary writes them; `deploy/fleet` has their text.

mod admission;
mod names;
mod rbac;
mod server;
mod workloads;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

pub use names::NAMESPACE;
pub use server::{Installation, install_on};

use crate::api::{Fleet, ImageSet, NodeImages};

/// Returns the files of the base with their objects.
#[must_use]
pub fn base() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        ("crds.yaml", crds()),
        ("rbac.yaml", rbac::objects()),
        ("admission.yaml", admission::objects()),
        ("controller.yaml", workloads::controller()),
        ("daemonset.yaml", workloads::node()),
        ("kustomization.yaml", vec![kustomization()]),
    ]
}

/// Returns all objects for one file.
#[must_use]
pub fn install() -> Vec<Value> {
    let files = base().into_iter().filter(|(name, _)| *name != "kustomization.yaml");
    files.flat_map(|(_, objects)| objects).collect()
}

/// Returns the definitions of the kinds.
#[must_use]
pub fn crds() -> Vec<Value> {
    let definitions = [ImageSet::crd(), NodeImages::crd(), Fleet::crd()];
    // These types have no map with keys that are no text.
    definitions.iter().map(|definition| serde_json::to_value(definition).unwrap_or_default()).collect()
}

fn kustomization() -> Value {
    let resources: Vec<&str> = vec!["crds.yaml", "rbac.yaml", "admission.yaml", "controller.yaml", "daemonset.yaml"];
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
        "images": [{"name": "localhost/imagelet", "newTag": env!("CARGO_PKG_VERSION")}],
    })
}

#[cfg(test)]
#[path = "manifests_tests.rs"]
mod tests;
