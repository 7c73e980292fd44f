//! [`WorkerSlot`]: the state that the sync loop and the worker of one pod share: orders to the worker, and the last known state of the
//! pod. Decides nothing and makes no calls.

use base::lock::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::runtime_pods::RuntimePod;
use super::{PodView, WorkerState};
use crate::labels::PodOwner;
use crate::observed::ObservedPod;
use crate::pod::Pod;
use crate::status::PodEnd;
use crate::status::api::{Phase, PodStatus, Waiting};

/// An order to end a pod and to remove it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndOrder {
    /// Grace period of the whole pod in seconds; `None` for the pod's own.
    pub(super) grace: Option<i64>,
}

impl EndOrder {
    /// Returns true if this order leaves less time than `other`.
    pub(super) fn is_shorter_than(self, other: Self) -> bool {
        self.grace.is_some_and(|grace| other.grace.is_none_or(|other| grace < other))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// The desired pod; `None` for a pod in the runtime that no source has.
    pub(super) pod: Option<Arc<Pod>>,
    /// The order to end the pod, if there is one.
    pub(super) end: Option<EndOrder>,
}

/// A pod with a worker.
pub(super) struct WorkerSlot {
    pub(super) owner: PodOwner,
    /// Pods that were added earlier have a lower number.
    pub(super) sequence: u64,
    /// Time at which the pod was added.
    pub(super) added_at: Instant,
    orders: watch::Sender<Orders>,
    /// Wakes the worker to observe the pod.
    pub(super) wake: Notify,
    /// True if a whole sync must follow the next observation.
    whole: AtomicBool,
    /// True once the pod was allowed to start, so that the runtime may have something of it.
    pub(super) begun: AtomicBool,
    /// Guards the cancellation of the running sync.
    running: Mutex<CancellationToken>,
    /// Guards the last known state of the pod.
    record: Mutex<PodRecord>,
}

/// Last known state of the pod.
#[derive(Debug)]
pub(super) struct PodRecord {
    pub(super) state: WorkerState,
    /// Last observation.
    pub(super) observed: Option<Arc<ObservedPod>>,
    /// Reasons of containers whose start failed.
    pub(super) waiting: BTreeMap<String, Waiting>,
    /// The published view.
    pub(super) view: Option<Arc<PodView>>,
    /// Reason for which the pod was ended as a whole.
    pub(super) ended: Option<PodEnd>,
    /// Grace period in seconds of a pod that was ended as a whole; `None` for the pod's own.
    pub(super) end_grace: Option<i64>,
    /// Last failure.
    pub(super) error: Option<String>,
    /// Actions of the last observation.
    pub(super) actions: String,
    /// The pod as published while it is being deleted.
    pub(super) ending: Option<Arc<Pod>>,
    pub(super) age: Option<PodAge>,
    /// The status of the pod before this process, or that of its rejection.
    pub(super) before: Option<Arc<PodStatus>>,
    /// True if the pod was rejected because another one has its ports.
    pub(super) lacks_ports: bool,
}

/// Age of a pod by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodAge {
    start: Timestamp,
    /// Age of the pod when this process first observed it.
    before: SignedDuration,
    since: Instant,
}

impl PodAge {
    pub(super) fn new(start: Timestamp, wall: Timestamp, now: Instant) -> Self {
        Self { start, before: wall.duration_since(start).max(SignedDuration::ZERO), since: now }
    }

    /// Returns the time of day, without steps of the wall clock since the first observation.
    pub(super) fn now(&self, now: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(now.saturating_duration_since(self.since)).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(self.before.saturating_add(passed)).unwrap_or(Timestamp::MAX)
    }
}

impl WorkerSlot {
    /// Creates the slot of a desired pod, or without `pod` that of a pod in the runtime.
    pub(super) fn new(owner: PodOwner, pod: Option<Arc<Pod>>, sequence: u64, now: Instant) -> Self {
        let end = pod.is_none().then(EndOrder::default);
        let record = PodRecord {
            state: if end.is_some() { WorkerState::Terminating } else { WorkerState::Queued },
            observed: None,
            waiting: BTreeMap::new(),
            view: None,
            ended: None,
            end_grace: None,
            error: None,
            actions: String::new(),
            ending: None,
            age: None,
            before: None,
            lacks_ports: false,
        };
        Self {
            owner,
            sequence,
            added_at: now,
            begun: AtomicBool::new(pod.is_none()),
            orders: watch::Sender::new(Orders { pod, end }),
            wake: Notify::new(),
            whole: AtomicBool::new(false),
            running: Mutex::new(CancellationToken::new()),
            record: Mutex::new(record),
        }
    }

    pub(super) fn record(&self) -> MutexGuard<'_, PodRecord> {
        self.record.lock()
    }

    pub(super) fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    pub(super) fn state(&self) -> WorkerState {
        self.record().state
    }

    /// Returns the desired pod.
    pub(super) fn pod(&self) -> Option<Arc<Pod>> {
        self.orders.borrow().pod.clone()
    }

    /// Returns true if the pod has succeeded, failed or been rejected.
    pub(super) fn is_over(&self) -> bool {
        let record = self.record();
        let over = |status: &PodStatus| status.is_over();
        record.before.as_deref().is_some_and(over) || record.view.as_ref().is_some_and(|view| over(&view.status))
    }

    /// Returns true if the pod is to be ended and removed.
    pub(super) fn is_ending(&self) -> bool {
        self.orders.borrow().end.is_some()
    }

    /// Sets the pod that should run. A sync for another one is cancelled.
    pub(super) fn should_be(&self, pod: &Arc<Pod>) {
        let changed = self.orders.send_if_modified(|orders| {
            let same = |old: &Arc<Pod>| Arc::ptr_eq(old, pod) || old == pod;
            let changes = orders.end.is_none() && !orders.pod.as_ref().is_some_and(same);
            if changes {
                orders.pod = Some(Arc::clone(pod));
            }
            changes
        });
        if changed {
            self.cancel_sync();
        }
    }

    /// Orders the end of the pod. An order that leaves more time than an earlier one does not count.
    pub(super) fn end(&self, order: EndOrder) {
        let changed = self.orders.send_if_modified(|orders| {
            let counts = orders.end.is_none_or(|earlier| order.is_shorter_than(earlier));
            if counts {
                orders.end = Some(order);
            }
            counts
        });
        if changed {
            self.cancel_sync();
        }
    }

    /// Ends the pod as a whole within `grace` seconds and keeps it as failed. Returns false if it is ending for another reason.
    pub(super) fn fail(&self, end: PodEnd, grace: i64) -> bool {
        let mut record = self.record();
        if record.ended.is_some() || record.state != WorkerState::Syncing || self.is_ending() {
            return false;
        }
        (record.ended, record.end_grace) = (Some(end), Some(grace));
        drop(record);
        self.cancel_sync();
        self.wake(true);
        true
    }

    /// Ends a pod that has failed according to its API server, but not according to this node.
    pub(super) fn failed_elsewhere(&self, status: &PodStatus) {
        if status.phase != Phase::Failed {
            return;
        }
        let mut record = self.record();
        let is_over = record.view.as_ref().is_some_and(|view| view.status.is_over());
        if is_over || record.ended.is_some() || record.before.as_ref().is_some_and(|before| before.is_over()) {
            return;
        }
        record.ended = Some(PodEnd { reason: status.reason.clone(), message: status.message.clone() });
        drop(record);
        self.cancel_sync();
        self.wake(true);
    }

    /// Wakes the worker to observe the pod; with `whole` a sync follows, whatever the observation shows.
    pub(super) fn wake(&self, whole: bool) {
        if whole {
            self.whole.store(true, Ordering::Release);
        }
        self.wake.notify_one();
    }

    /// Returns true once if a whole sync was requested.
    pub(super) fn take_whole(&self) -> bool {
        self.whole.swap(false, Ordering::AcqRel)
    }

    /// Records that a sync begins, which `stop` cancels. The sync follows `orders`: newer ones cancel it at once.
    pub(super) fn sync_begins(&self, stop: &CancellationToken, orders: &watch::Receiver<Orders>) {
        let mut running = self.running.lock();
        *running = stop.clone();
        if orders.has_changed().unwrap_or(false) {
            stop.cancel();
        }
    }

    fn cancel_sync(&self) {
        self.running.lock().cancel();
    }

    /// Returns true if the last observation showed the same state.
    pub(super) fn has_seen(&self, pod: Option<&Arc<RuntimePod>>) -> bool {
        let record = self.record();
        let Some(observed) = &record.observed else { return false };
        match pod {
            Some(pod) => pod.is_seen(observed),
            None => observed.sandboxes.is_empty() && observed.containers.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slot() -> WorkerSlot {
        WorkerSlot::new(PodOwner::default(), Some(Arc::new(Pod::default())), 1, Instant::now())
    }

    #[test]
    fn only_a_shorter_grace_period_replaces_an_earlier_one() {
        let slot = slot();
        let orders = slot.orders();
        let mut asked = Vec::new();
        for grace in [None, Some(20), Some(30), None, Some(5)] {
            slot.end(EndOrder { grace });
            asked.push(orders.borrow().end.and_then(|order| order.grace));
        }
        assert_eq!(asked, [None, Some(20), Some(20), Some(20), Some(5)]);
        // A pod that is being ended takes no new definition.
        let mut other = Pod::default();
        other.metadata.name = "x".into();
        slot.should_be(&Arc::new(other));
        assert_eq!(slot.pod().expect("a pod").metadata.name, "");
    }

    #[test]
    fn another_pod_cancels_what_was_begun_and_an_equal_one_does_not() {
        let slot = slot();
        let (stop, mut orders) = (CancellationToken::new(), slot.orders());
        orders.mark_unchanged();
        slot.sync_begins(&stop, &orders);
        slot.should_be(&Arc::new(Pod::default()));
        assert!(!stop.is_cancelled() && !orders.has_changed().unwrap());
        let mut other = Pod::default();
        other.metadata.name = "x".into();
        slot.should_be(&Arc::new(other));
        assert!(stop.is_cancelled() && orders.has_changed().unwrap());
        // What begins by old orders is over before it began.
        let late = CancellationToken::new();
        slot.sync_begins(&late, &orders);
        assert!(late.is_cancelled());
    }

    #[test]
    fn the_age_of_a_pod_follows_the_monotonic_clock() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let begin = Instant::now();
        assert_eq!(PodAge::new(at(100), at(130), begin).now(begin + Duration::from_secs(5)), at(135));
        // The clock was set back since it was started.
        assert_eq!(PodAge::new(at(100), at(30), begin).now(begin + Duration::from_secs(5)), at(105));
    }
}
