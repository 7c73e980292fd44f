//! [`PodAgent`]: the sync loop. It keeps one worker for each pod, receives changes from sources, from the runtime and
//! from probes, and wakes the pods concerned. The actions of a pod are decided by `compute_pod_actions` and performed
//! by [`PodRuntime`], not in this module.
//!
//! `agent` is the loop, `worker` the task of one pod, `relist` the kubelet's PLEG; what they share is in `shared` and `slot`.

/// The span of a worker's step, with the kubelet's names and attributes.
macro_rules! pod_span {
    ($name:literal, $owner:expr, update_type = $update_type:expr) => {
        tracing::trace_span!(
            $name,
            k8s.pod.uid = %$owner.uid,
            k8s.pod.name = %$owner.name,
            k8s.namespace.name = %$owner.namespace,
            k8s.pod.update_type = $update_type,
        )
    };
}

mod agent;
mod board;
mod ending;
mod health;
mod known;
mod metrics;
mod observer;
mod options;
mod relist;
mod runtime_pods;
mod shared;
mod slot;
mod timing;
mod unknown;
mod worker;

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::container_gc::PodStates;
use crate::events::PodEvent;
use crate::pod::{EnvSource, Pod, VolumeSource};
use crate::probes::ProbeManager;
use crate::sources::DesiredPods;
use crate::status::PodEnd;
use crate::sync::PodRuntime;
use agent::Agent;
pub use board::{PodView, WorkerState};
pub use metrics::WorkerMetrics;
pub use options::AgentOptions;
use shared::AgentState;
use slot::EndOrder;

/// Keeps the pods of a node as they should be.
pub struct PodAgent {
    shared: Arc<AgentState>,
    /// Guards the channel for results of probes, until the loop takes it.
    changed: Mutex<Option<UnboundedReceiver<String>>>,
    working: watch::Sender<bool>,
    begin: Instant,
}

impl PodAgent {
    /// `changed` receives the uids of pods whose probes have new results.
    #[must_use]
    pub fn new(
        runtime: Arc<PodRuntime>,
        probes: Arc<ProbeManager>,
        desired: watch::Receiver<DesiredPods>,
        changed: UnboundedReceiver<String>,
        options: AgentOptions,
    ) -> Self {
        Self {
            shared: AgentState::new(runtime, probes, desired, options),
            changed: Mutex::new(Some(changed)),
            working: watch::Sender::new(false),
            begin: Instant::now(),
        }
    }

    /// Works until `stop`, once. Containers go on when it returns, so that the next process finds them. Calls of the runtime
    /// that hang are left after [`AgentOptions::shutdown`].
    pub async fn run(&self, stop: &CancellationToken) {
        let changed = self.changed.lock().take();
        let Some(mut changed) = changed else { return stop.cancelled().await };
        self.working.send_replace(true);
        let _working = WorkingGuard(&self.working);
        Agent::new(Arc::clone(&self.shared), stop.clone()).run(&mut changed).await;
    }

    /// Returns every known pod, by namespace and name, without waiting.
    #[must_use]
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        self.shared.board.all()
    }

    /// Comes back when [`PodAgent::pods`] has every pod that the sources want and every one that the runtime had at first: before
    /// that, the absence of a pod means nothing. Needs the runtime to answer.
    pub async fn until_known(&self) {
        known::until_known(&self.shared, self.begin).await;
    }

    /// Hears whenever [`PodAgent::pods`] answers something else.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.board.changes()
    }

    /// Checks that the runtime answers, or did half a minute ago, and that its last list is recent enough.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn healthy(&self) -> Result<(), String> {
        self.shared.health.check(Instant::now())
    }

    /// Returns the time since the sync loop began its last turn: seconds, unless it hangs.
    #[must_use]
    pub fn since_turn(&self) -> Duration {
        self.shared.since_turn()
    }

    /// States of pods for container collection.
    #[must_use]
    pub fn states(&self) -> Arc<dyn PodStates> {
        Arc::clone(&self.shared) as Arc<dyn PodStates>
    }

    /// Returns the metrics of the workers.
    #[must_use]
    pub fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.shared.options.metrics
    }

    /// Syncs a pod soon, whatever its state.
    pub fn wake(&self, uid: &str) {
        self.shared.wake(uid, true);
    }

    /// Ends a pod as failed, within `grace` seconds, and records the event. Returns false if it does not run or is ending already.
    pub fn evict(&self, uid: &str, end: PodEnd, grace: i64) -> bool {
        let slot = self.shared.table().slots.get(uid).map(Arc::clone);
        let message = end.message.clone();
        let Some(slot) = slot.filter(|slot| slot.fail(end, grace)) else { return false };
        self.shared.runtime.record_event(&slot.owner, None, &PodEvent::Evicted(&message));
        true
    }

    /// ConfigMaps or Secrets are others than they were: pods that name any are synced, so that their volumes follow.
    pub fn documents_changed(&self) {
        self.shared.wake_all(true, |slot| slot.pod().is_some_and(|pod| names_documents(&pod)));
    }

    /// Ends and removes every pod that has a worker, within `grace` seconds or the pods' own, and takes no further
    /// ones; returns when they are removed. [`PodAgent::run`] does the work.
    pub async fn end_all(&self, grace: Option<i64>) {
        let mut changes = self.changes();
        let mut working = self.working.subscribe();
        self.shared.closing.send_replace(Some(EndOrder { grace }));
        loop {
            changes.mark_unchanged();
            if self.shared.table().slots.is_empty() {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                // The agent has stopped.
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
                (desired.ready || desired.reported) && desired.pods.keys().all(over)
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

/// Reports that the agent has stopped, for whatever reason.
struct WorkingGuard<'a>(&'a watch::Sender<bool>);

impl Drop for WorkingGuard<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// Returns true if a pod needs ConfigMaps or Secrets.
fn names_documents(pod: &Pod) -> bool {
    let mut sources = pod.spec.volumes.iter().map(VolumeSource::of);
    let volumes = sources.any(|source| source.documents().next().is_some() || source.tokens().next().is_some());
    let variables = || {
        pod.all_containers().any(|(_, container)| {
            let named = |source: EnvSource<'_>| matches!(source, EnvSource::ConfigMapKey(_) | EnvSource::SecretKey(_));
            !container.env_from.is_empty() || container.env.iter().any(|variable| named(EnvSource::of(variable)))
        })
    };
    volumes || !pod.spec.image_pull_secrets.is_empty() || variables()
}

#[cfg(test)]
mod tests;
