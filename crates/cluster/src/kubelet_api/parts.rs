//! [`Parts`]: the sources from which the port answers, passed in by the process that runs pods. Plain data.

use std::sync::Arc;

use cri_api::RuntimeService;
use serde_json::Value;

use crate::kubelet_api::authority::Authority;
use crate::kubelet_api::tls::TlsFiles;

/// The parts that the port answers from.
#[derive(Clone)]
pub struct Parts {
    /// The certificate of the port, and the authorities of its clients.
    pub tls: TlsFiles,
    /// Name of the node.
    pub node: String,
    /// The API server, which authenticates and authorizes clients.
    pub authority: Arc<dyn Authority>,
    /// The runtime of the pods, the source of their logs, streams and figures.
    pub runtime: Arc<dyn RuntimeService>,
    /// The pods of this node as a PodList, with their status.
    pub pods: Arc<dyn Fn() -> Value + Send + Sync>,
    /// Fails with the reason while the node does not keep its pods as they should be.
    pub healthy: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// The configuration in force as JSON, without secrets.
    pub configuration: Arc<dyn Fn() -> Value + Send + Sync>,
    /// The metrics of the process, as Prometheus reads them.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}
