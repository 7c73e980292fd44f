//! This node as a member of a Kubernetes cluster: the client of the API server and all that is written there. The only crate that
//! knows the types of the Kubernetes API; it runs no pod and pulls no image. Put together by the binary.
#![deny(missing_docs)]

pub mod client;
pub mod events;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod identity;
pub mod mirror;
pub mod node;
pub mod object_cache;
pub mod pod_cache;
pub mod retry;
pub mod reviews;
pub mod status;
pub mod tokens;
pub mod watch;

pub use client::{ClientError, ClusterClient};
