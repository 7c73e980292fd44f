//! Pods on a CRI runtime: the model of a pod, the actions that a pod needs (pure), and the code that performs them over
//! `cri_api::RuntimeService`. Images are requested from `image_manager` only, and containers are probed over the
//! network through [`probe`]. It knows no gRPC, no embedded engine and no credentials; the binary calls it.
//!
//! ```
//! use imagelet_kuberuntime::{Origin, admit};
//! use serde_json::json;
//!
//! let manifest = json!({
//!     "apiVersion": "v1",
//!     "kind": "Pod",
//!     "metadata": { "name": "web" },
//!     "spec": { "containers": [{ "name": "main", "image": "nginx:1.27" }] },
//! });
//! // A static pod gets the name of its node, a uid and the defaults of the API server.
//! let pod = admit(&manifest, "node-1", Origin::File("/etc/imagelet/manifests/web.yaml")).expect("a valid pod");
//! assert_eq!(pod.metadata.name, "web-node-1");
//! ```
#![deny(missing_docs)]

mod actions;
mod admission;
pub mod config;
pub mod container_gc;
mod defaults;
mod documents;
mod environment;
mod events;
pub mod eviction;
pub mod handlers;
mod hash;
mod identity;
pub mod labels;
pub mod logs;
mod observed;
pub mod pod;
pub mod probe;
pub mod probes;
mod qos;
mod restart_backoff;
pub mod sources;
mod status;
pub mod sync;
mod termination;
mod validate;
mod volume_files;
pub mod volumes;
pub mod workers;

pub use actions::{ProbeResult, ProbeResults, Probed};
pub use admission::NodeCapacity;
pub(crate) use defaults::set_defaults;
pub use documents::{Document, DocumentContent, DocumentKind, Documents, TokenKey};
pub use environment::PodContext;
pub(crate) use environment::resolve as resolve_environment;
pub use identity::{Origin, admit};
pub use manifest::{FieldError, FieldErrors, FieldPath, FieldProblem};
pub use observed::{ObservedContainer, ObservedPod, ObservedSandbox};
pub use qos::QosClass;
pub use status::api::{
    ContainerState, ContainerStatus, Phase, PodCondition, PodIp, PodStatus, Running, Terminated, Waiting,
};
pub use status::{PodEnd, StatusInput, pod_status};
pub(crate) use validate::validate;

#[cfg(test)]
mod round_trip_tests;
