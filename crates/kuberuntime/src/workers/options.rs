//! [`AgentOptions`]: the intervals and limits of the sync loop, with the kubelet's defaults where it has any.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::WorkerMetrics;

/// Options of the sync loop.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Interval at which the runtime is listed.
    pub relist: Duration,
    /// Interval at which the runtime is listed while its events report the changes.
    pub evented_relist: Duration,
    /// True if the runtime's events are followed.
    pub events: bool,
    /// After so long without an answer the runtime counts as down.
    pub relist_threshold: Duration,
    /// Interval of syncs without a change.
    pub resync: Duration,
    /// Time that a pod waits after an error.
    pub error_backoff: Duration,
    /// Time that a pod waits for the runtime's network.
    pub network_backoff: Duration,
    /// Interval of the search for objects that should not exist.
    pub housekeeping: Duration,
    /// Time after which a cancelled sync is given up.
    pub patience: Duration,
    /// Time that everything may take to end with the process.
    pub shutdown: Duration,
    /// True if pods of this program that no source has any more are ended. False where the process runs only some pods,
    /// next to those of other processes: then only former pods of the present manifests are ended.
    pub end_unknown: bool,
    /// Decides how pods are spread over time.
    pub seed: u64,
    /// Metrics of the workers.
    pub metrics: Arc<WorkerMetrics>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            relist: Duration::from_secs(1),
            // Not the kubelet's 300 s: runtimes lose events, for example to a second listener.
            evented_relist: Duration::from_secs(30),
            events: true,
            relist_threshold: Duration::from_secs(180),
            resync: Duration::from_secs(60),
            error_backoff: Duration::from_secs(10),
            network_backoff: Duration::from_secs(1),
            housekeeping: Duration::from_secs(2),
            patience: Duration::from_secs(120),
            shutdown: Duration::from_secs(5),
            end_unknown: true,
            seed: RandomState::new().build_hasher().finish(),
            metrics: WorkerMetrics::new(),
        }
    }
}
