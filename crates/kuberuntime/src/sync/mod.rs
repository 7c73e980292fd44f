//! [`PodRuntime`]: observes a pod, performs the actions of `compute_pod_actions` in the kubelet's order, ends pods and
//! removes them. Holds no pod and no schedule: a worker makes one call at a time for each pod. State that it
//! keeps between two calls (delays of restarts, images that are pulled ahead of their turn, hooks that were run) may be
//! lost at any moment; only the state in the runtime counts.

mod failure;
mod image_volumes;
mod images;
mod kill;
mod messages;
mod metrics;
mod observe;
mod pod_sync;
mod prefetch;
mod runtime;
mod sandbox;
mod start;
mod steps;

use tokio_util::sync::CancellationToken;

use crate::actions::ProbeResults;
use crate::observed::ObservedPod;
use crate::pod::Pod;
use crate::status::api::Waiting;
pub(crate) use failure::PodRuntimeError;
pub use metrics::PodMetrics;
use pod_sync::PodSync;
pub(crate) use pod_sync::SyncReport;
pub use runtime::PodRuntime;
pub use runtime::{CredentialsOf, DocumentsOf, NodeFacts, PodCredentials, PodRuntimeParts};
pub use sandbox::network_remedy;

impl PodRuntime {
    /// Performs the actions of a pod. After `stop` is cancelled it waits for no image, no hook and no container to end,
    /// and begins no further step; it only waits for calls of the runtime that create or start something.
    /// `report_start` is called with the outcome of each start as soon as it is known.
    pub(crate) async fn sync_pod(
        &self,
        pod: &Pod,
        observed: &ObservedPod,
        probes: &ProbeResults,
        report_start: &(dyn Fn(&str, Option<&Waiting>) + Send + Sync),
        stop: &CancellationToken,
    ) -> SyncReport {
        PodSync::new(self, pod, observed, report_start, stop).run(probes).await
    }

    /// Ends everything of a pod that runs: preStop hooks, then containers in the order of termination, then sandboxes.
    /// `pod` is `None` for a pod that is no longer known. A shorter `grace` takes precedence over all others. To make
    /// the end faster, drop the future and call again: no hook is then run a second time.
    ///
    /// # Errors
    /// Something still runs, or may run.
    pub(crate) async fn end_pod(
        &self,
        pod: Option<&Pod>,
        observed: &ObservedPod,
        grace: Option<i64>,
    ) -> Result<(), PodRuntimeError> {
        self.prefetch.forget(&observed.owner.uid);
        kill::kill_pod(self, pod, observed, grace).await
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
pub(crate) mod tests;
