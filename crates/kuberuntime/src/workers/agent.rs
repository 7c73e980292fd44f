//! The sync loop itself: it gives each pod a worker, passes desired pods to the workers, and does housekeeping: pods
//! that no source wants are ended, unused directories are removed. It waits for no worker and calls no runtime.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::metrics::WorkingPods;
use super::observer::PodObserver;
use super::relist::Relist;
use super::shared::AgentState;
use super::slot::{EndOrder, WorkerSlot};
use super::timing::Jitter;
use super::unknown::{UnknownPodVerdict, judge};
use super::worker::Worker;
use super::{PodView, WorkerState};
use crate::admission::Rejection;
use crate::admission::ports::{self, HostPorts};
use crate::events::PodEvent;
use crate::identity::CONFIG_SEEN_ANNOTATION;
use crate::labels::PodOwner;
use crate::pod::Pod;
use crate::sources::{API_SOURCE, CONFIG_ORIGIN_ANNOTATION, DesiredPods};
use crate::status::api::{Phase, PodStatus};

/// Directories of pods are listed at least so often.
const DIRECTORIES: Duration = Duration::from_secs(60);

/// A run of the sync loop.
pub(super) struct Agent {
    shared: Arc<AgentState>,
    background: BackgroundTasks,
    jitter: Jitter,
    /// Pods of other programs that were logged.
    foreign: HashSet<String>,
    /// Time of the next list of directories.
    directories: Instant,
    /// True if pods wait for the first list of the runtime, which shows the one that has the port that several ask for.
    undecided_ports: bool,
}

/// Tasks that run next to the loop.
#[derive(Clone)]
struct BackgroundTasks {
    shared: Arc<AgentState>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends what does not end by itself.
    kill: CancellationToken,
}

impl Agent {
    pub(super) fn new(shared: Arc<AgentState>, stop: CancellationToken) -> Self {
        let jitter = Jitter::new(shared.options.seed, "");
        let (tasks, kill) = (TaskTracker::new(), CancellationToken::new());
        let background = BackgroundTasks { shared: Arc::clone(&shared), tasks, stop, kill };
        Self {
            shared,
            background,
            jitter,
            foreign: HashSet::new(),
            directories: Instant::now(),
            undecided_ports: false,
        }
    }

    /// Runs until it is stopped. Syncs are then cancelled and, after a timeout, dropped; containers keep running.
    pub(super) async fn run(mut self, changed: &mut UnboundedReceiver<String>) {
        let shared = Arc::clone(&self.shared);
        // Dropping this future ends all background tasks.
        let _all = self.background.kill.clone().drop_guard();
        self.background.run(Relist::new(Arc::clone(&shared)).run(self.background.stop.clone()));
        let mut desired = shared.desired.clone();
        let mut seen = shared.seen.subscribe();
        let mut closing = shared.closing.subscribe();
        let mut sources_ended = false;
        let mut housekeeping = Instant::now() + shared.options.housekeeping;
        self.apply();
        loop {
            shared.turn();
            tokio::select! {
                biased;
                () = self.background.stop.cancelled() => break,
                changed = desired.changed(), if !sources_ended => {
                    // The last list stays in force.
                    sources_ended = changed.is_err();
                    self.apply();
                }
                _ = closing.changed() => self.apply(),
                () = shared.worker_ended.notified() => {
                    self.directories = Instant::now();
                    self.apply();
                }
                _ = seen.changed() => if self.undecided_ports { self.apply() } else { self.review_unknown() },
                Some(uid) = changed.recv() => shared.wake(&uid, false),
                () = sleep_until(housekeeping) => {
                    self.keep_house();
                    housekeeping = Instant::now() + self.jitter.spread(shared.options.housekeeping);
                }
            }
        }
        let BackgroundTasks { tasks, kill, .. } = &self.background;
        tasks.close();
        if tokio::time::timeout(shared.options.shutdown, tasks.wait()).await.is_err() {
            tracing::warn!("calls of the runtime did not end in time");
            kill.cancel();
            tasks.wait().await;
        }
        let pulls = tokio::time::timeout(shared.options.shutdown, shared.runtime.shutdown());
        if pulls.await.is_err() {
            tracing::warn!("pulls did not end in time");
        }
    }

    /// Starts a worker for every desired pod, and ends all others.
    fn apply(&mut self) {
        let desired = self.shared.desired.clone();
        let desired = desired.borrow();
        let closing = *self.shared.closing.borrow();
        let (mut added, mut table) = (Vec::new(), self.shared.table());
        for (uid, pod) in &desired.pods {
            match table.slots.get(uid) {
                Some(slot) if is_of(&slot.owner, pod) => {
                    slot.should_be(pod);
                    if let Some(status) = desired.statuses.get(uid) {
                        slot.failed_elsewhere(status);
                    }
                }
                // Another name under the same uid: the objects of the old one are removed first.
                Some(slot) => slot.end(EndOrder::default()),
                None if closing.is_none() => added.push(pod),
                None => {}
            }
        }
        for (uid, slot) in &table.slots {
            match closing {
                Some(order) => slot.end(order),
                None if !desired.pods.contains_key(uid) && !is_held(slot, &desired) => slot.end(EndOrder::default()),
                None => {}
            }
        }
        let seen = self.shared.last_seen();
        let runs = |pod: &Pod| {
            let pod = seen.as_ref().and_then(|seen| seen.pods.get(&pod.metadata.uid));
            pod.is_some_and(|pod| pod.sandboxes.values().any(|ready| *ready))
        };
        // Running pods first, then the others, each in the order in which the sources reported them.
        added.sort_by_key(|pod| (!runs(pod), seen_order(pod)));
        self.undecided_ports = false;
        if seen.is_none() {
            let asking = desired.pods.values().filter(|pod| !is_over_before(pod, &desired));
            let asking: Vec<_> = asking.collect();
            let before = added.len();
            added.retain(|pod| {
                is_over_before(pod, &desired)
                    || !asking.iter().any(|other| !Arc::ptr_eq(pod, other) && ports::conflicts(pod, other))
            });
            self.undecided_ports = added.len() < before;
        }
        let mut taken = HostPorts::default();
        for slot in table.slots.values().filter(|slot| !slot.is_ending() && !slot.is_over()) {
            slot.pod().iter().for_each(|pod| taken.take(pod));
        }
        let mut insert = |pod: &Arc<Pod>| {
            let mut before = desired.statuses.get(&pod.metadata.uid).cloned();
            let mut lacks_ports = false;
            if !is_over_before(pod, &desired) {
                if let Some(other) = taken.in_the_way(pod) {
                    before = Some(self.reject(pod, other));
                    lacks_ports = true;
                } else {
                    taken.take(pod);
                }
            }
            let slot = table.insert(PodOwner::of(pod), Some(Arc::clone(pod)));
            let mut record = slot.record();
            (record.before, record.lacks_ports) = (before, lacks_ports);
            drop(record);
            slot
        };
        let added: Vec<_> = added.into_iter().map(&mut insert).collect();
        self.admit_again(&table.slots, &taken);
        let returned = added.iter().filter(|slot| table.had_worker(&slot.owner.uid)).count();
        drop((table, desired));
        for _ in 0..returned {
            self.shared.options.metrics.restarted();
        }
        for slot in added {
            self.background.spawn(slot);
        }
        self.review_unknown();
    }

    /// Rejects a pod because another pod has one of its host ports, and returns its status.
    fn reject(&self, pod: &Arc<Pod>, other: &Pod) -> Arc<PodStatus> {
        let Rejection { reason, message } = Rejection::host_ports();
        tracing::warn!(
            pod = pod.title(),
            other = other.title(),
            "rejected a pod, because the other one has a host port of it"
        );
        self.shared.runtime.record_event(&PodOwner::of(pod), None, &PodEvent::Rejected { reason, message: &message });
        let message = format!("Pod was rejected: {message}");
        Arc::new(PodStatus::failed(pod, reason.to_owned(), message, self.shared.wall_clock()))
    }

    /// Removes rejected pods of manifests whose ports are free by now, so that they are added again as new pods. A pod of an API server has
    /// failed for good, and its controller creates another.
    fn admit_again(&self, slots: &HashMap<String, Arc<WorkerSlot>>, taken: &HostPorts) {
        if !self.shared.options.end_unknown {
            return;
        }
        for slot in slots.values().filter(|slot| slot.record().lacks_ports && !slot.is_ending()) {
            let Some(pod) = slot.pod() else { continue };
            let is_local = pod.metadata.annotations.get(CONFIG_ORIGIN_ANNOTATION).is_none_or(|from| from != API_SOURCE);
            if is_local && taken.in_the_way(&pod).is_none() {
                slot.end(EndOrder::default());
            }
        }
    }

    /// Decides about pods in the runtime that have no worker.
    fn review_unknown(&mut self) {
        let Some(seen) = self.shared.last_seen() else { return };
        if self.shared.closing.borrow().is_none() {
            self.end_unknown(&seen);
        }
        // All pods that block others have a worker now.
        self.shared.open.send_if_modified(|open| !std::mem::replace(open, true));
        self.shared.wake_all(false, |slot| slot.state() == WorkerState::Queued);
    }

    fn end_unknown(&mut self, seen: &super::runtime_pods::RuntimePods) {
        let desired = self.shared.desired.clone();
        let desired = desired.borrow();
        self.foreign.retain(|uid| seen.pods.contains_key(uid));
        let mut orphans = Vec::new();
        let mut table = self.shared.table();
        for (uid, pod) in &seen.pods {
            if table.slots.contains_key(uid) || table.was_removed(uid) {
                continue;
            }
            let PodOwner { name, namespace, .. } = &pod.owner;
            match judge(pod, &desired) {
                UnknownPodVerdict::Foreign if self.foreign.insert(uid.clone()) => {
                    tracing::info!(pod = name, namespace, uid, "ignoring a pod of another program");
                }
                verdict @ (UnknownPodVerdict::Orphan | UnknownPodVerdict::Replaced)
                    if verdict == UnknownPodVerdict::Replaced || self.shared.options.end_unknown =>
                {
                    tracing::info!(pod = name, namespace, uid, "ending a pod that no source has");
                    self.shared.options.metrics.orphan();
                    orphans.push(table.insert(pod.owner.clone(), None));
                }
                _ => {}
            }
        }
        drop(table);
        for slot in orphans {
            self.background.spawn(slot);
        }
    }

    fn keep_house(&mut self) {
        self.apply();
        self.shared.runtime.collect();
        self.count();
        let ready = self.shared.desired.borrow().ready && self.shared.last_seen().is_some();
        if ready && self.shared.options.end_unknown && self.directories <= Instant::now() {
            self.directories = Instant::now() + DIRECTORIES;
            let background = self.background.clone();
            self.background.run(async move { background.remove_directories().await });
        }
    }

    fn count(&self) {
        let desired = self.shared.desired.borrow();
        let mut working: BTreeMap<&str, WorkingPods> = BTreeMap::new();
        for (uid, slot) in &self.shared.table().slots {
            let lifecycle = match slot.state() {
                WorkerState::Queued | WorkerState::Syncing => "sync",
                WorkerState::Terminating => "terminating",
                WorkerState::Terminated => "terminated",
            };
            let counts = working.entry(lifecycle).or_default();
            match (slot.pod().is_some(), desired.pods.contains_key(uid)) {
                (true, true) => counts.desired += 1,
                (true, false) => counts.orphan += 1,
                (false, _) => counts.runtime_only += 1,
            }
        }
        let ended = self.shared.board.all().iter().filter(|view| is_over(view)).count();
        let states = ["sync", "terminating", "terminated"];
        let working = states.map(|state| (state, working.get(state).copied().unwrap_or_default()));
        let active = desired.pods.len().saturating_sub(ended);
        self.shared.options.metrics.pods(desired.pods.len(), active, working);
    }
}

impl BackgroundTasks {
    /// Starts a worker.
    fn spawn(&self, slot: Arc<WorkerSlot>) {
        let shared = Arc::clone(&self.shared);
        let broken = WorkerPanicGuard { shared: Arc::clone(&shared), slot: Arc::clone(&slot) };
        let worker = Worker::new(PodObserver { shared, slot }, self.stop.clone());
        self.run(async move {
            worker.run().await;
            drop(broken);
        });
    }

    /// Runs a task next to the loop.
    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = kill.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Removes directories of pods that neither a source nor the runtime has.
    async fn remove_directories(self) {
        let uids = match self.shared.runtime.parts().volumes.uids().await {
            Ok(uids) => uids,
            Err(error) => return tracing::warn!(%error, "cannot list directories of pods"),
        };
        let mut left = Vec::new();
        {
            let desired = self.shared.desired.borrow();
            let Some(seen) = self.shared.last_seen() else { return };
            if !desired.ready || !desired.held.is_empty() || self.stop.is_cancelled() {
                // A directory may be of a manifest that cannot be read now.
                return;
            }
            let mut table = self.shared.table();
            for uid in uids {
                let is_known = desired.pods.contains_key(&uid) || table.slots.contains_key(&uid);
                if !is_known && !seen.pods.contains_key(&uid) {
                    tracing::info!(uid, "removing the directory of a removed pod");
                    left.push(table.insert(PodOwner { uid, ..PodOwner::default() }, None));
                }
            }
        }
        for slot in left {
            self.spawn(slot);
        }
    }
}

/// Removes the slot of a worker that panicked, so that the next housekeeping starts another one.
struct WorkerPanicGuard {
    shared: Arc<AgentState>,
    slot: Arc<WorkerSlot>,
}

impl Drop for WorkerPanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.table().forget(&self.slot);
        }
    }
}

/// Returns true if a pod has succeeded or failed.
pub(super) fn is_over(view: &PodView) -> bool {
    matches!(view.status.phase, Phase::Succeeded | Phase::Failed)
}

/// Returns true if the manifest or the source of a pod cannot be read now.
fn is_held(slot: &WorkerSlot, desired: &DesiredPods) -> bool {
    let origin = slot.pod().and_then(|pod| pod.metadata.annotations.get(CONFIG_ORIGIN_ANNOTATION).cloned());
    origin.is_some_and(|origin| desired.holds(&origin))
}

/// Returns true if a pod had succeeded or failed before this process read it.
fn is_over_before(pod: &Pod, desired: &DesiredPods) -> bool {
    desired.statuses.get(&pod.metadata.uid).is_some_and(|status| status.is_over())
}

fn seen_order(pod: &Pod) -> (Option<String>, String, String) {
    let metadata = &pod.metadata;
    (metadata.annotations.get(CONFIG_SEEN_ANNOTATION).cloned(), metadata.namespace.clone(), metadata.name.clone())
}

/// Returns true if a pod has this namespace and name.
fn is_of(owner: &PodOwner, pod: &Pod) -> bool {
    (&owner.name, &owner.namespace) == (&pod.metadata.name, &pod.metadata.namespace)
}
