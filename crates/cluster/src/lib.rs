//! This node as a member of a Kubernetes cluster: the client of the API server, everything that is written there, and the
//! kubelet's port, with the listener that the other TCP ports of the agent use. Runs no pod and pulls no image. Assembled by the
//! binary.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use imagelet_cluster::{ClientError, ClusterClient};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example() -> Result<(), ClientError> {
//! let client = ClusterClient::open(Path::new("/etc/kubernetes/kubelet.conf")).await?;
//! let stop = CancellationToken::new();
//! // Follows rotated certificates and tokens, while other tasks use the client.
//! client.follow_files(&stop).await;
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod client;
pub mod events;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod identity;
pub mod kubelet_api;
pub mod mirror;
pub mod node;
pub mod object_cache;
pub mod pod_cache;
pub mod pull_secrets;
pub mod retry;
pub mod reviews;
pub mod status;
pub mod tokens;
pub mod watch;

pub use client::{ClientError, ClusterClient};
