//! [`PodAgent`]: the sync loop. It keeps one worker for each pod, hears of changes from sources, from the runtime and from
//! probes, and wakes the pods that they are about. What a pod needs is decided by [`crate::compute_pod_actions`] and done by
//! [`PodRuntime`]; nothing of that is here.
//!
//! `agent` is the loop, `worker` the task of one pod, `relist` the kubelet's PLEG; what they share is in `shared` and `slot`.

mod agent;
mod board;
mod ending;
mod health;
mod look;
mod metrics;
mod relist;
mod runtime_pods;
mod shared;
mod slot;
mod states;
mod timing;
mod unknown;
mod worker;

use parking_lot::Mutex;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::container_gc::PodStates;
use crate::pod::{EnvSource, Pod, ProjectedSource, VolumeSource};
use crate::probes::ProbeManager;
use crate::sources::DesiredPods;
use crate::status::api::PodStatus;
use crate::sync::PodRuntime;
use agent::Agent;
pub use metrics::WorkerMetrics;
use shared::Shared;

/// How the sync loop works.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// How often the runtime is asked for everything.
    pub relist: Duration,
    /// How often where its events tell what happens.
    pub evented_relist: Duration,
    /// Whether its events are listened to.
    pub events: bool,
    /// After so long without an answer the runtime counts as down.
    pub relist_threshold: Duration,
    /// How often a pod is looked at though nothing happened.
    pub resync: Duration,
    /// How long a pod waits after an error.
    pub error_backoff: Duration,
    /// How long a pod waits for the runtime's network.
    pub network_backoff: Duration,
    /// How often what should not be there is looked for.
    pub housekeeping: Duration,
    /// How long a sync that was cancelled may take to end before it is given up.
    pub patience: Duration,
    /// How long everything may take to end with the process.
    pub shutdown: Duration,
    /// Whether pods are ended that this program made and nobody wants any more. Not where only some pods are run beside
    /// those of others: then only what their own manifests were before goes.
    pub end_unknown: bool,
    /// Decides how pods are spread over time.
    pub seed: u64,
    /// Where it is counted.
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

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It waits for an earlier pod of its name to be gone, or for the runtime to answer at all.
    Queued,
    /// It is kept as it should be.
    Syncing,
    /// It is being ended.
    Terminating,
    /// It has ended, and nothing of it runs.
    Terminated,
}

impl WorkerState {
    /// In one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Syncing => "Syncing",
            Self::Terminating => "Terminating",
            Self::Terminated => "Terminated",
        }
    }
}

/// A pod, for people.
#[derive(Clone, Debug)]
pub struct PodView {
    /// What it should be. Of one that is being deleted it says so, and of one that was found in the runtime it is what can
    /// be said of it.
    pub pod: Arc<Pod>,
    /// How it is, or was when the runtime last answered.
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
    shared: Arc<Shared>,
    /// Guards the channel that tells of probes, until the loop has it.
    changed: Mutex<Option<UnboundedReceiver<String>>>,
    working: watch::Sender<bool>,
}

impl PodAgent {
    /// `changed` tells uids of pods whose probes said something new.
    #[must_use]
    pub fn new(
        runtime: Arc<PodRuntime>,
        probes: Arc<ProbeManager>,
        desired: watch::Receiver<DesiredPods>,
        changed: UnboundedReceiver<String>,
        options: AgentOptions,
    ) -> Self {
        Self {
            shared: Shared::new(runtime, probes, desired, options),
            changed: Mutex::new(Some(changed)),
            working: watch::Sender::new(false),
        }
    }

    /// Works until `stop`, once. Containers go on when it returns, so that the next process finds them. Calls of the runtime
    /// that hang are left after [`AgentOptions::shutdown`].
    pub async fn run(&self, stop: &CancellationToken) {
        let changed = self.changed.lock().take();
        let Some(mut changed) = changed else { return stop.cancelled().await };
        self.working.send_replace(true);
        let _working = Working(&self.working);
        Agent::new(Arc::clone(&self.shared), stop.clone()).run(&mut changed).await;
    }

    /// Every pod that is known, by namespace and name. Waits for nothing.
    #[must_use]
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        self.shared.board.all()
    }

    /// Hears whenever [`PodAgent::pods`] answers something else.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.board.changes()
    }

    /// Whether the runtime answers, or did half a minute ago, and its last list is not too old.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn healthy(&self) -> Result<(), String> {
        self.shared.health.check(Instant::now())
    }

    /// What container collection wants to know.
    #[must_use]
    pub fn states(&self) -> Arc<dyn PodStates> {
        Arc::clone(&self.shared) as Arc<dyn PodStates>
    }

    /// Where it is counted.
    #[must_use]
    pub fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.shared.options.metrics
    }

    /// Syncs a pod soon, whatever it looks like.
    pub fn wake(&self, uid: &str) {
        self.shared.wake(uid, true);
    }

    /// ConfigMaps or Secrets are others than they were: pods that name any are synced, so that their volumes follow.
    pub fn documents_changed(&self) {
        self.shared.wake_all(true, |slot| slot.pod().is_some_and(|pod| names_documents(&pod)));
    }

    /// Ends and removes every pod that has a worker, within `grace` seconds or the pods' own, and takes no further ones;
    /// answers when they are gone. [`PodAgent::run`] does the work.
    pub async fn end_all(&self, grace: Option<i64>) {
        let mut changes = self.changes();
        let mut working = self.working.subscribe();
        self.shared.closing.send_replace(Some(grace));
        loop {
            changes.mark_unchanged();
            if self.shared.table().slots.is_empty() {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                // Nobody works any more.
                _ = working.wait_for(|works| !works) => return,
            }
        }
    }

    /// Answers when every pod that should be here has succeeded or failed, and nothing of it runs: how each is then.
    pub async fn finished(&self) -> Vec<Arc<PodView>> {
        let mut changes = self.changes();
        let mut desired = self.shared.desired.clone();
        let mut sources_left = false;
        loop {
            changes.mark_unchanged();
            desired.mark_unchanged();
            let views = self.pods();
            let over = |uid: &String| {
                let view = views.iter().find(|view| view.pod.metadata.uid == *uid);
                view.is_some_and(|view| agent::is_over(view) && view.state == WorkerState::Terminated)
            };
            let all = {
                let desired = desired.borrow();
                desired.ready && desired.pods.keys().all(over)
            };
            if all {
                return views;
            }
            tokio::select! {
                _ = changes.changed() => {}
                heard = desired.changed(), if !sources_left => sources_left = heard.is_err(),
            }
        }
    }
}

/// Says that nobody works any more, however that came.
struct Working<'a>(&'a watch::Sender<bool>);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// Whether a pod needs ConfigMaps or Secrets.
fn names_documents(pod: &Pod) -> bool {
    let volumes = pod.spec.volumes.iter().any(|volume| match &volume.source {
        VolumeSource::ConfigMap(_) | VolumeSource::Secret(_) => true,
        VolumeSource::Projected { sources, .. } => {
            sources.iter().any(|source| matches!(source, ProjectedSource::ConfigMap(_) | ProjectedSource::Secret(_)))
        }
        _ => false,
    });
    let variables = || {
        pod.all_containers().any(|(_, container)| {
            let named = |source: &EnvSource| matches!(source, EnvSource::ConfigMapKey(_) | EnvSource::SecretKey(_));
            !container.env_from.is_empty() || container.env.iter().any(|variable| named(&variable.source))
        })
    };
    volumes || !pod.spec.image_pull_secrets.is_empty() || variables()
}

#[cfg(test)]
mod tests;
