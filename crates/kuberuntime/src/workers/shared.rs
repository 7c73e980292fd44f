//! [`AgentState`]: what the sync loop, the workers, the relist and the readers of pods have in common: which pods have a worker,
//! whose turn it is, what the runtime showed last. Answers container collection ([`PodStates`]) from that: a pod of another
//! program, and what may be one's, is never removed. Starts nothing and never asks the runtime; [`super::agent`] does.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::lock::{Mutex, MutexGuard};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::board::PodBoard;
use super::health::Health;
use super::runtime_pods::RuntimePods;
use super::slot::{EndOrder, WorkerSlot};
use super::unknown::{UnknownPodVerdict, judge};
use super::{AgentOptions, WorkerState};
use crate::container_gc::PodStates;
use crate::labels::PodOwner;
use crate::probes::ProbeManager;
use crate::sources::DesiredPods;
use crate::sync::PodRuntime;

/// The reason for which a pod waits before the runtime has answered for the first time, for people.
pub(super) const FIRST_ANSWER: &str = "wait for the first list from the runtime";

/// State that the loop, the workers and the relist share.
pub(super) struct AgentState {
    pub(super) runtime: Arc<PodRuntime>,
    pub(super) probes: Arc<ProbeManager>,
    pub(super) desired: watch::Receiver<DesiredPods>,
    pub(super) options: AgentOptions,
    pub(super) board: PodBoard,
    pub(super) health: Health,
    /// Last state of the runtime; `None` before its first answer.
    pub(super) seen: watch::Sender<Option<Arc<RuntimePods>>>,
    /// True once the first state of the runtime was examined. Before that no pod is started, because a pod that was
    /// found may stand in its way.
    pub(super) open: watch::Sender<bool>,
    /// Name of the runtime, in front of the ids of containers.
    pub(super) runtime_name: OnceLock<String>,
    /// The order to end all pods, once it is given.
    pub(super) closing: watch::Sender<Option<EndOrder>>,
    /// Notified when a worker has ended.
    pub(super) left: Notify,
    /// Guards when the sync loop last began a turn.
    turned: Mutex<Instant>,
    /// Guards which pods have a worker.
    table: Mutex<WorkerTable>,
}

/// Which pods have a worker.
#[derive(Default)]
pub(super) struct WorkerTable {
    pub(super) slots: HashMap<String, Arc<WorkerSlot>>,
    /// When workers of pods left: lists that were asked for before that may still show them.
    gone: HashMap<String, Instant>,
    /// When the last lists were asked for that were answered.
    asked: Option<Instant>,
    told: u64,
}

impl WorkerTable {
    /// Gives a pod a slot, behind all pods that were added before.
    pub(super) fn insert(&mut self, owner: PodOwner, pod: Option<Arc<crate::pod::Pod>>) -> Arc<WorkerSlot> {
        self.told += 1;
        let slot = Arc::new(WorkerSlot::new(owner, pod, self.told, Instant::now()));
        self.slots.insert(slot.owner.uid.clone(), Arc::clone(&slot));
        slot
    }

    /// Returns true if a pod had a worker not long ago.
    pub(super) fn was_here(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// Removes the slot of a worker that has ended. Leftovers of the pod are removed elsewhere.
    pub(super) fn forget(&mut self, slot: &Arc<WorkerSlot>) {
        let uid = slot.owner.uid.as_str();
        if self.slots.get(uid).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            self.slots.remove(uid);
        }
    }

    /// Records that the runtime has answered a request for its lists, which was sent at that time.
    pub(super) fn answered(&mut self, asked: Instant) {
        self.asked = Some(asked);
        self.gone.retain(|_, gone| asked <= *gone);
    }

    /// Returns true if a pod of the last lists was removed since.
    pub(super) fn was_removed(&self, uid: &str) -> bool {
        self.gone.get(uid).is_some_and(|gone| self.asked.is_none_or(|asked| asked <= *gone))
    }

    /// The uid of a pod of the same name which has to be gone before this one may begin.
    fn in_the_way(&self, slot: &WorkerSlot, seen: &RuntimePods) -> Option<String> {
        let namesake = |owner: &PodOwner| {
            owner.uid != slot.owner.uid && owner.name == slot.owner.name && owner.namespace == slot.owner.namespace
        };
        let is_there = |uid: &str| seen.pods.contains_key(uid) && !self.was_removed(uid);
        // Pods that are in the runtime already rank first.
        let rank = |slot: &WorkerSlot| (!is_there(&slot.owner.uid), slot.sequence);
        let earlier = self.slots.values().find(|other| {
            namesake(&other.owner)
                && (other.begun.load(Ordering::Acquire)
                    || if other.is_ending() { is_there(&other.owner.uid) } else { rank(other) < rank(slot) })
        });
        // Pods of this program without a worker: they are not judged yet, or their manifests are held.
        let undecided = || {
            seen.pods.values().find(|pod| {
                pod.origin.is_some()
                    && namesake(&pod.owner)
                    && !self.slots.contains_key(&pod.owner.uid)
                    && !self.was_removed(&pod.owner.uid)
            })
        };
        let earlier = earlier.map(|other| &other.owner).or_else(|| undecided().map(|pod| &pod.owner));
        earlier.map(|owner| owner.uid.clone())
    }
}

impl AgentState {
    pub(super) fn new(
        runtime: Arc<PodRuntime>,
        probes: Arc<ProbeManager>,
        desired: watch::Receiver<DesiredPods>,
        options: AgentOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            health: Health::new(options.relist_threshold),
            runtime,
            probes,
            desired,
            options,
            board: PodBoard::new(),
            seen: watch::Sender::new(None),
            open: watch::Sender::new(false),
            runtime_name: OnceLock::new(),
            closing: watch::Sender::new(None),
            left: Notify::new(),
            turned: Mutex::new(Instant::now()),
            table: Mutex::default(),
        })
    }

    /// Records that the sync loop begins a turn.
    pub(super) fn turn(&self) {
        *self.turned.lock() = Instant::now();
    }

    /// How long the sync loop has been at its last turn.
    pub(super) fn since_turn(&self) -> Duration {
        self.turned.lock().elapsed()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, WorkerTable> {
        self.table.lock()
    }

    pub(super) fn wall_clock(&self) -> Timestamp {
        (self.runtime.parts().node.wall_clock)()
    }

    /// The address of pods that have the node's network.
    pub(super) fn host_ips(&self) -> &[String] {
        &self.runtime.parts().node.around.host_ips
    }

    /// Last state of the runtime.
    pub(super) fn last_seen(&self) -> Option<Arc<RuntimePods>> {
        self.seen.borrow().clone()
    }

    /// Looks at a pod, if it has a worker.
    pub(super) fn wake(&self, uid: &str, whole: bool) {
        if let Some(slot) = self.table().slots.get(uid) {
            slot.wake(whole);
        }
    }

    /// Looks at every pod of which `which` holds.
    pub(super) fn wake_all(&self, whole: bool, which: impl Fn(&WorkerSlot) -> bool) {
        for slot in self.table().slots.values().filter(|slot| which(slot)) {
            slot.wake(whole);
        }
    }

    /// Gives a pod its turn.
    ///
    /// # Errors
    /// A message for people that says what the pod waits for.
    pub(super) fn take_turn(&self, slot: &WorkerSlot) -> Result<(), String> {
        let seen = self.last_seen().filter(|_| *self.open.borrow());
        let Some(seen) = seen else { return Err(FIRST_ANSWER.to_owned()) };
        let table = self.table();
        match table.in_the_way(slot, &seen) {
            Some(uid) => Err(format!("wait until pod {uid} of the same name is gone")),
            None => {
                slot.begun.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Removes a pod whose worker has ended. Pods that wait for it check again whether it is their turn.
    pub(super) fn leave(&self, slot: &Arc<WorkerSlot>) {
        let uid = slot.owner.uid.as_str();
        self.probes.forget(uid);
        let mut table = self.table();
        table.forget(slot);
        table.gone.insert(uid.to_owned(), Instant::now());
        drop(table);
        self.board.take(&slot.owner);
        self.wake_all(false, |slot| slot.state() == WorkerState::Queued);
        self.left.notify_one();
    }
}

impl PodStates for AgentState {
    fn sources_ready(&self) -> bool {
        self.desired.borrow().ready && self.last_seen().is_some()
    }

    fn content_removable(&self, pod_uid: &str) -> bool {
        if !self.sources_ready() {
            return false;
        }
        let slot = self.table().slots.get(pod_uid).cloned();
        if let Some(slot) = slot {
            return slot.is_ending() && slot.state() == WorkerState::Terminated;
        }
        let Some(seen) = self.last_seen() else { return false };
        let desired = self.desired.borrow();
        match seen.pods.get(pod_uid) {
            Some(pod) => matches!(judge(pod, &desired), UnknownPodVerdict::Replaced | UnknownPodVerdict::Orphan),
            // Nothing of it is in the runtime. Where another program keeps pods, it may be one of those; where a manifest
            // cannot be read, it may be of that.
            None => {
                !desired.pods.contains_key(pod_uid)
                    && desired.held.is_empty()
                    && seen.pods.values().all(|pod| pod.origin.is_some())
            }
        }
    }

    fn runtime_removable(&self, pod_uid: &str) -> bool {
        let slot = self.table().slots.get(pod_uid).cloned();
        match slot {
            Some(slot) => slot.state() == WorkerState::Terminated,
            None => self.content_removable(pod_uid),
        }
    }
}
