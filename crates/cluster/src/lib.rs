//! This node as a member of a Kubernetes cluster: the client of the API server and all that is written there. The only crate that
//! knows the types of the Kubernetes API; it runs no pod and pulls no image. Put together by the binary.

mod backoff;
pub mod client;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod watch;

pub use client::{ClientError, ClusterClient};
