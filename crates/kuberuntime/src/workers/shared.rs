//! [`AgentState`]: the state that the sync loop, the workers, the relist and the readers of pods share: the workers, the order in
//! which pods start, and the last state of the runtime. Container collection ([`PodStates`]) is answered from it: content that may
//! belong to a pod of another program is never removed. Starts nothing and makes no calls; [`super::agent`] does.

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

/// Reason for which a pod waits before the first answer of the runtime.
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
    /// True once the first state of the runtime was examined. No pod is started before, because a pod in the runtime may have to end
    /// first.
    pub(super) open: watch::Sender<bool>,
    /// Name of the runtime, the prefix of container IDs.
    pub(super) runtime_name: OnceLock<String>,
    /// The order to end all pods, once it is given.
    pub(super) closing: watch::Sender<Option<EndOrder>>,
    /// Notified when a worker has ended.
    pub(super) worker_ended: Notify,
    /// Guards the time at which the sync loop began its last turn.
    turn_began: Mutex<Instant>,
    /// Guards the workers.
    table: Mutex<WorkerTable>,
}

/// The workers of pods.
#[derive(Default)]
pub(super) struct WorkerTable {
    pub(super) slots: HashMap<String, Arc<WorkerSlot>>,
    /// Times at which workers of pods ended. Lists that were requested before may still show their pods.
    ended_at: HashMap<String, Instant>,
    /// Time of the request for the last lists.
    asked: Option<Instant>,
    /// Sequence number of the last added pod.
    last_sequence: u64,
}

impl WorkerTable {
    /// Adds a slot for a pod, after all earlier pods in the order of starts.
    pub(super) fn insert(&mut self, owner: PodOwner, pod: Option<Arc<crate::pod::Pod>>) -> Arc<WorkerSlot> {
        self.last_sequence += 1;
        let slot = Arc::new(WorkerSlot::new(owner, pod, self.last_sequence, Instant::now()));
        self.slots.insert(slot.owner.uid.clone(), Arc::clone(&slot));
        slot
    }

    /// Returns true if a worker of the pod has ended since the request for the last lists.
    pub(super) fn had_worker(&self, uid: &str) -> bool {
        self.ended_at.contains_key(uid)
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
        self.ended_at.retain(|_, ended| asked <= *ended);
    }

    /// Returns true if a pod of the last lists was removed since.
    pub(super) fn was_removed(&self, uid: &str) -> bool {
        self.ended_at.get(uid).is_some_and(|ended| self.asked.is_none_or(|asked| asked <= *ended))
    }

    /// Returns the uid of a pod of the same name that must be removed before this one may start.
    fn blocking_pod(&self, slot: &WorkerSlot, seen: &RuntimePods) -> Option<String> {
        let namesake = |owner: &PodOwner| {
            owner.uid != slot.owner.uid && owner.name == slot.owner.name && owner.namespace == slot.owner.namespace
        };
        let is_in_runtime = |uid: &str| seen.pods.contains_key(uid) && !self.was_removed(uid);
        // Pods that are in the runtime already rank first.
        let rank = |slot: &WorkerSlot| (!is_in_runtime(&slot.owner.uid), slot.sequence);
        let earlier = self.slots.values().find(|other| {
            namesake(&other.owner)
                && (other.begun.load(Ordering::Acquire)
                    || if other.is_ending() { is_in_runtime(&other.owner.uid) } else { rank(other) < rank(slot) })
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
            worker_ended: Notify::new(),
            turn_began: Mutex::new(Instant::now()),
            table: Mutex::default(),
        })
    }

    /// Records that the sync loop begins a turn.
    pub(super) fn turn(&self) {
        *self.turn_began.lock() = Instant::now();
    }

    /// Returns the time since the sync loop began its last turn.
    pub(super) fn since_turn(&self) -> Duration {
        self.turn_began.lock().elapsed()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, WorkerTable> {
        self.table.lock()
    }

    pub(super) fn wall_clock(&self) -> Timestamp {
        (self.runtime.parts().node.wall_clock)()
    }

    /// Returns the addresses of pods on the node's network.
    pub(super) fn host_ips(&self) -> &[String] {
        &self.runtime.parts().node.context.host_ips
    }

    /// Returns the last state of the runtime.
    pub(super) fn last_seen(&self) -> Option<Arc<RuntimePods>> {
        self.seen.borrow().clone()
    }

    /// Wakes the worker of a pod, if there is one.
    pub(super) fn wake(&self, uid: &str, whole: bool) {
        if let Some(slot) = self.table().slots.get(uid) {
            slot.wake(whole);
        }
    }

    /// Wakes all workers that `which` selects.
    pub(super) fn wake_all(&self, whole: bool, which: impl Fn(&WorkerSlot) -> bool) {
        for slot in self.table().slots.values().filter(|slot| which(slot)) {
            slot.wake(whole);
        }
    }

    /// Lets a pod start, if no other pod has to end first.
    ///
    /// # Errors
    /// The reason for which the pod waits.
    pub(super) fn take_turn(&self, slot: &WorkerSlot) -> Result<(), String> {
        let seen = self.last_seen().filter(|_| *self.open.borrow());
        let Some(seen) = seen else { return Err(FIRST_ANSWER.to_owned()) };
        let table = self.table();
        match table.blocking_pod(slot, &seen) {
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
        table.ended_at.insert(uid.to_owned(), Instant::now());
        drop(table);
        self.board.take(&slot.owner);
        self.wake_all(false, |slot| slot.state() == WorkerState::Queued);
        self.worker_ended.notify_one();
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
            // The runtime has nothing of it. It may be a pod of another program, or of a manifest that cannot be read.
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
