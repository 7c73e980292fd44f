//! [`Worker`]: the task of one pod. It waits for its turn, keeps the pod as it should be, ends it, removes it, and
//! returns. No other task waits for it: a call of the runtime that hangs holds up this pod alone. The actions are
//! decided by [`compute_pod_actions`] and performed by [`crate::sync::PodRuntime`].

use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::WorkerState;
use super::metrics::WorkerOperation;
use super::observer::PodObserver;
use super::slot::Orders;
use super::timing::{Jitter, NextSync, RemainingWork, next_sync};
use crate::actions::compute_pod_actions;
use crate::events::PodEvent;
use crate::labels::PodOwner;
use crate::observed::ObservedPod;
use crate::pod::Pod;
use crate::status::PodEnd;
use crate::status::api::{Phase, PodStatus};
use crate::sync::{PodRuntimeError, SyncReport};

/// The task of one pod.
pub(super) struct Worker {
    pub(super) observer: PodObserver,
    pub(super) orders: watch::Receiver<Orders>,
    /// Cancelled when no new work may begin.
    pub(super) stop: CancellationToken,
    pub(super) jitter: Jitter,
    /// Kind of the next sync, for metrics.
    work: WorkerOperation,
    /// True once the first start of the whole pod was counted.
    has_started: bool,
    /// Time that the first start waited for images.
    pulled: Duration,
    /// Number of syncs that followed each other at once.
    in_a_row: u32,
}

/// Maximum number of syncs without a pause: a container may end as fast as it is started.
const IN_A_ROW: u32 = 10;

enum SyncOutcome {
    /// The pod is observed again.
    Next(NextSync),
    /// Nothing to do, and no whole sync requested.
    Rest,
    /// The pod has ended, or has to end, and stays so.
    Over,
}

/// Reason for the end of a phase of a worker.
pub(super) enum PhaseEnd {
    /// The next phase begins.
    On,
    /// The process ends.
    Stopped,
}

impl Worker {
    pub(super) fn new(observer: PodObserver, stop: CancellationToken) -> Self {
        let jitter = Jitter::new(observer.shared.options.seed, &observer.slot.owner.uid);
        let orders = observer.slot.orders();
        Self {
            observer,
            orders,
            stop,
            jitter,
            work: WorkerOperation::Create,
            has_started: false,
            pulled: Duration::ZERO,
            in_a_row: 0,
        }
    }

    /// Runs from the addition of the pod until it is removed.
    pub(super) async fn run(mut self) {
        self.observer.publish();
        if let PhaseEnd::Stopped = self.wait_for_turn().await {
            return;
        }
        if !self.observer.slot.is_ending() {
            let metrics = &self.observer.shared.options.metrics;
            metrics.worker_started(self.observer.slot.added_at.elapsed());
            self.observer.enter(WorkerState::Syncing);
            if let PhaseEnd::Stopped = self.keep().await {
                return;
            }
        }
        if !self.observer.slot.is_ending() {
            // The pod is over, and is listed until no source wants it any more.
            if let PhaseEnd::Stopped = self.end().await {
                return;
            }
            self.release_volumes().await;
            self.observer.enter(WorkerState::Terminated);
            if let PhaseEnd::Stopped = self.linger().await {
                return;
            }
        }
        if self.observer.slot.state() != WorkerState::Terminated {
            if let PhaseEnd::Stopped = self.end().await {
                return;
            }
            self.observer.enter(WorkerState::Terminated);
        }
        if let PhaseEnd::Stopped = self.remove().await {
            return;
        }
        self.observer.shared.leave(&self.observer.slot);
    }

    async fn wait_for_turn(&mut self) -> PhaseEnd {
        let shared = Arc::clone(&self.observer.shared);
        let mut open = shared.open.subscribe();
        loop {
            let is_open = *open.borrow_and_update();
            // Before a first answer is due there is nothing to report.
            let is_down = !is_open && shared.health.is_down();
            self.observer.set_error(shared.health.check(Instant::now()).err().filter(|_| is_down));
            if is_open && self.observer.slot.is_ending() {
                return PhaseEnd::On;
            }
            match shared.take_turn(&self.observer.slot) {
                Ok(()) => return PhaseEnd::On,
                Err(waits) => self.set_actions(waits),
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return PhaseEnd::Stopped,
                _ = open.changed() => {}
                _ = self.orders.changed() => {}
                () = self.observer.slot.wake.notified() => {}
            }
        }
    }

    /// Keeps the pod as it should be, until it is over or to be ended.
    async fn keep(&mut self) -> PhaseEnd {
        let mut due = Instant::now();
        let mut whole = true;
        loop {
            let orders = self.orders.borrow_and_update().clone();
            let Some(pod) = orders.pod.filter(|_| orders.end.is_none()) else { return PhaseEnd::On };
            if pod.metadata.deletion_timestamp.is_some() {
                // The source has asked for the end of this pod and still lists it.
                return PhaseEnd::On;
            }
            match self.sync(&pod, whole).await {
                SyncOutcome::Over => return PhaseEnd::On,
                SyncOutcome::Rest => {}
                SyncOutcome::Next(NextSync::Now) => due = Instant::now(),
                SyncOutcome::Next(NextSync::After(wait)) => due = Instant::now() + self.before_deadline(&pod, wait),
            }
            whole = true;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return PhaseEnd::Stopped,
                _ = self.orders.changed() => self.work = WorkerOperation::Update,
                () = self.observer.slot.wake.notified() => whole = self.observer.slot.take_whole() || Instant::now() >= due,
                () = sleep_until(due) => {}
            }
        }
    }

    /// Observes the pod and syncs it, unless nothing has to be done and no `whole` sync was requested.
    async fn sync(&mut self, pod: &Arc<Pod>, whole: bool) -> SyncOutcome {
        let Self { observer, jitter, .. } = self;
        let (shared, slot) = (Arc::clone(&observer.shared), Arc::clone(&observer.slot));
        let options = &shared.options;
        let observed = match observer.observe().await {
            Ok(observed) => observed,
            Err(error) => {
                observer.set_error(Some(in_full(&error)));
                return SyncOutcome::Next(NextSync::After(jitter.spread(options.error_backoff)));
            }
        };
        if self.is_over(pod) {
            return SyncOutcome::Over;
        }
        let actions = compute_pod_actions(pod, &observed, &shared.probes.results(&slot.owner.uid));
        self.set_actions(actions.to_string());
        if actions.is_empty() && !whole {
            return SyncOutcome::Rest;
        }
        let begun = Instant::now();
        let report = self.do_sync(pod, &observed).await;
        options.metrics.worked(std::mem::replace(&mut self.work, WorkerOperation::Sync), begun.elapsed());
        for (container, waiting) in &report.starts {
            self.observer.set_waiting(container, waiting.as_ref());
        }
        let did_nothing = report.actions.is_empty() && report.errors.is_empty();
        // An observation after the sync shows whether there is more to do.
        let after = if did_nothing { Ok(observed) } else { self.observer.observe().await };
        let after = match after {
            Ok(after) => after,
            Err(error) => {
                self.observer.set_error(Some(in_full(&error)));
                return SyncOutcome::Next(NextSync::After(self.jitter.spread(options.error_backoff)));
            }
        };
        if !report.cancelled {
            self.observer.set_errors(&report);
        }
        if self.is_over(pod) {
            return SyncOutcome::Over;
        }
        let next = compute_pod_actions(pod, &after, &shared.probes.results(&slot.owner.uid));
        self.set_actions(next.to_string());
        let left = match () {
            () if next.is_empty() => RemainingWork::Nothing,
            () if next == report.actions || (next.create_sandbox && report.actions.create_sandbox) => {
                RemainingWork::TheSame
            }
            () => RemainingWork::More,
        };
        if !self.has_started {
            self.pulled += report.waited_for_images;
            self.count_start();
        }
        let next = next_sync(&report, left, shared.wall_clock(), options, &mut self.jitter);
        self.in_a_row = if next == NextSync::Now { self.in_a_row + 1 } else { 0 };
        if self.in_a_row > IN_A_ROW {
            self.in_a_row = 0;
            return SyncOutcome::Next(NextSync::After(options.relist));
        }
        SyncOutcome::Next(next)
    }

    /// Runs a sync, during which the pod is observed. A sync that was cancelled and does not end is abandoned.
    async fn do_sync(&self, pod: &Arc<Pod>, observed: &ObservedPod) -> SyncReport {
        let (shared, slot) = (&self.observer.shared, &self.observer.slot);
        let stop = self.stop.child_token();
        slot.sync_begins(&stop, &self.orders);
        let probes = shared.probes.results(&slot.owner.uid);
        let report_start = |container: &str, waiting: Option<&_>| self.observer.set_waiting(container, waiting);
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(shared.options.patience).await;
        };
        let span = pod_span!("syncPod", slot.owner, update_type = self.work.as_str());
        // Boxed, since the compiler gives up on types of tasks that nest as deep as this one would.
        let sync = shared.runtime.sync_pod(pod, observed, &probes, &report_start, &stop).instrument(span).boxed();
        tokio::select! {
            report = sync => report,
            never = self.observer.keep_observing() => match never {},
            () = given_up => {
                tracing::warn!(pod = pod.title(), "cancelled sync hangs in the runtime, abandoning it");
                SyncReport { cancelled: true, ..SyncReport::default() }
            }
        }
    }

    /// Returns true if the pod has succeeded or failed, or ran for longer than it may.
    fn is_over(&mut self, pod: &Pod) -> bool {
        let mut record = self.observer.slot.record();
        let phase = record.view.as_ref().map(|view| view.status.phase);
        if matches!(phase, Some(Phase::Succeeded | Phase::Failed)) {
            return true;
        }
        let Some(age) = record.age else { return false };
        let Some(view) = &record.view else { return false };
        let Some(end) = PodEnd::deadline(pod, view.status.start_time, age.now(Instant::now())) else { return false };
        let event = PodEvent::DeadlineExceeded(&end.message);
        self.observer.shared.runtime.record_event(&PodOwner::of(pod), None, &event);
        record.ended = Some(end);
        drop(record);
        self.observer.publish();
        true
    }

    /// `wait`, or less where the pod may not run for so long.
    fn before_deadline(&self, pod: &Pod, wait: Duration) -> Duration {
        let left = || {
            let deadline = pod.spec.active_deadline_seconds?;
            let record = self.observer.slot.record();
            let (age, view) = (record.age?, record.view.as_ref()?);
            let ran = age.now(Instant::now()).duration_since(view.status.start_time);
            Duration::try_from(jiff::SignedDuration::from_secs(deadline).saturating_sub(ran)).ok()
        };
        left().map_or(wait, |left| wait.min(left))
    }

    fn set_actions(&self, text: String) {
        let mut record = self.observer.slot.record();
        if record.actions != text {
            record.actions = text;
            drop(record);
            self.observer.publish();
        }
    }

    /// Counts how long the first start took, once all of the pod runs.
    fn count_start(&mut self) {
        let slot = &self.observer.slot;
        let record = slot.record();
        let Some(view) = record.view.as_ref().filter(|view| view.status.phase == Phase::Running) else { return };
        if !view.status.container_statuses.iter().all(|container| container.state.is_running()) {
            return;
        }
        self.has_started = true;
        // What was found running was not started here.
        if self.work == WorkerOperation::Sync && view.status.start_time >= self.added_at() {
            let apart = self.pulled + initialised_for(&view.status);
            self.observer.shared.options.metrics.pod_started(slot.added_at.elapsed(), apart);
        }
    }

    /// Returns the time of day at which the pod was added, less one second, because times of a status are in whole
    /// seconds.
    fn added_at(&self) -> jiff::Timestamp {
        let since_added = self.observer.slot.added_at.elapsed() + Duration::from_secs(1);
        let ago = jiff::SignedDuration::try_from(since_added).unwrap_or(jiff::SignedDuration::MAX);
        self.observer.shared.wall_clock().saturating_sub(ago).unwrap_or(jiff::Timestamp::MIN)
    }
}

/// Returns the run time of the init containers of a pod.
fn initialised_for(status: &PodStatus) -> Duration {
    let ran = status.init_container_statuses.iter().filter_map(|container| {
        let end = container.state.terminated()?;
        Duration::try_from(end.finished_at?.duration_since(end.started_at?)).ok()
    });
    ran.sum()
}

/// Returns an error with its causes, in one line.
pub(super) fn in_full(error: &PodRuntimeError) -> String {
    format!("{error}: {}", error.source)
}
