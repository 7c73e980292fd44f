//! [`Worker`]: the task of one pod. It waits for its turn, keeps the pod as it should be, ends it, removes it, and is gone.
//! Nothing else waits for it: a call of the runtime that hangs holds up this pod alone. What is to be done is decided by
//! [`compute_pod_actions`] and done by [`crate::sync::PodRuntime`].

use std::sync::Arc;
use std::time::Duration;

use image_manager::{EventRef, EventType, ObjectRef};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::WorkerState;
use super::look::Looker;
use super::metrics::Work;
use super::slot::Orders;
use super::timing::{Jitter, Left, Next, next_look};
use crate::actions::compute_pod_actions;
use crate::pod::Pod;
use crate::status::api::{Phase, PodStatus};
use crate::status::{ObservedPod, PodEnd};
use crate::sync::{PodRuntimeError, SyncReport};

/// The task of one pod.
pub(super) struct Worker {
    pub(super) looker: Looker,
    pub(super) orders: watch::Receiver<Orders>,
    /// Nothing new is begun.
    pub(super) stop: CancellationToken,
    pub(super) jitter: Jitter,
    /// Kind of the next sync, for metrics.
    work: Work,
    /// True once the first start of the whole pod was counted.
    has_started: bool,
    /// For how long its first start waited for images.
    pulled: Duration,
    /// So many syncs followed each other at once.
    in_a_row: u32,
}

/// More syncs do not follow each other at once: something may end as fast as it is started.
const IN_A_ROW: u32 = 10;

/// Result of a sync.
enum Outcome {
    /// The pod is observed again.
    Next(Next),
    /// There was nothing to do, and no whole sync was asked for.
    Rest,
    /// The pod has ended, or has to end, and stays so.
    Over,
}

/// Why a part of a worker's life is over.
pub(super) enum Way {
    /// On to the next part.
    On,
    /// The process ends.
    Stopped,
}

impl Worker {
    pub(super) fn new(looker: Looker, stop: CancellationToken) -> Self {
        let jitter = Jitter::new(looker.shared.options.seed, &looker.slot.owner.uid);
        let orders = looker.slot.orders();
        Self {
            looker,
            orders,
            stop,
            jitter,
            work: Work::Create,
            has_started: false,
            pulled: Duration::ZERO,
            in_a_row: 0,
        }
    }

    /// From the first word of the pod until it is gone.
    pub(super) async fn run(mut self) {
        self.looker.tell();
        if let Way::Stopped = self.wait_for_turn().await {
            return;
        }
        if !self.looker.slot.is_ending() {
            let metrics = &self.looker.shared.options.metrics;
            metrics.worker_started(self.looker.slot.told_at.elapsed());
            self.looker.enter(WorkerState::Syncing);
            if let Way::Stopped = self.keep().await {
                return;
            }
        }
        if !self.looker.slot.is_ending() {
            // It is over, and is listed until nobody wants it any more.
            if let Way::Stopped = self.end().await {
                return;
            }
            self.looker.enter(WorkerState::Terminated);
            if let Way::Stopped = self.linger().await {
                return;
            }
        }
        if self.looker.slot.state() != WorkerState::Terminated {
            if let Way::Stopped = self.end().await {
                return;
            }
            self.looker.enter(WorkerState::Terminated);
        }
        if let Way::Stopped = self.remove().await {
            return;
        }
        self.looker.shared.leave(&self.looker.slot);
    }

    async fn wait_for_turn(&mut self) -> Way {
        let shared = Arc::clone(&self.looker.shared);
        let mut open = shared.open.subscribe();
        loop {
            let is_open = *open.borrow_and_update();
            // Before the first answer may come there is nothing to tell.
            let is_down = !is_open && shared.health.is_down();
            self.looker.told_error(shared.health.check(Instant::now()).err().filter(|_| is_down));
            if is_open && self.looker.slot.is_ending() {
                return Way::On;
            }
            match shared.take_turn(&self.looker.slot) {
                Ok(()) => return Way::On,
                Err(waits) => self.told_actions(waits),
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Way::Stopped,
                _ = open.changed() => {}
                _ = self.orders.changed() => {}
                () = self.looker.slot.wake.notified() => {}
            }
        }
    }

    /// Keeps the pod as it should be, until it is over or to be ended.
    async fn keep(&mut self) -> Way {
        let mut due = Instant::now();
        let mut whole = true;
        loop {
            let orders = self.orders.borrow_and_update().clone();
            let Some(pod) = orders.pod.filter(|_| orders.end.is_none()) else { return Way::On };
            if pod.metadata.deletion_timestamp.is_some() {
                // Whoever tells us this pod has asked for its end and not taken it back yet.
                return Way::On;
            }
            match self.sync(&pod, whole).await {
                Outcome::Over => return Way::On,
                Outcome::Rest => {}
                Outcome::Next(Next::Now) => due = Instant::now(),
                Outcome::Next(Next::After(wait)) => due = Instant::now() + self.before_deadline(&pod, wait),
            }
            whole = true;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Way::Stopped,
                _ = self.orders.changed() => self.work = Work::Update,
                () = self.looker.slot.wake.notified() => whole = self.looker.slot.take_whole() || Instant::now() >= due,
                () = sleep_until(due) => {}
            }
        }
    }

    /// A look at the pod, and a sync, unless there is nothing to do and nobody asked for a `whole` one.
    async fn sync(&mut self, pod: &Arc<Pod>, whole: bool) -> Outcome {
        let Self { looker, jitter, .. } = self;
        let (shared, slot) = (Arc::clone(&looker.shared), Arc::clone(&looker.slot));
        let options = &shared.options;
        let observed = match looker.look().await {
            Ok(observed) => observed,
            Err(error) => {
                looker.told_error(Some(in_full(&error)));
                return Outcome::Next(Next::After(jitter.spread(options.error_backoff)));
            }
        };
        if self.is_over(pod) {
            return Outcome::Over;
        }
        let actions = compute_pod_actions(pod, &observed, &shared.probes.results(&slot.owner.uid));
        self.told_actions(actions.to_string());
        if actions.is_empty() && !whole {
            return Outcome::Rest;
        }
        let begun = Instant::now();
        let report = self.do_sync(pod, &observed).await;
        options.metrics.worked(std::mem::replace(&mut self.work, Work::Sync), begun.elapsed());
        for (container, waiting) in &report.starts {
            self.looker.told_start(container, waiting.as_ref());
        }
        let did_nothing = report.actions.is_empty() && report.errors.is_empty();
        // A look after it shows whether there is more to do.
        let after = if did_nothing { Ok(observed) } else { self.looker.look().await };
        let after = match after {
            Ok(after) => after,
            Err(error) => {
                self.looker.told_error(Some(in_full(&error)));
                return Outcome::Next(Next::After(self.jitter.spread(options.error_backoff)));
            }
        };
        if !report.cancelled {
            self.looker.told_error((!report.errors.is_empty()).then(|| report.errors.join("; ")));
        }
        if self.is_over(pod) {
            return Outcome::Over;
        }
        let next = compute_pod_actions(pod, &after, &shared.probes.results(&slot.owner.uid));
        self.told_actions(next.to_string());
        let left = match () {
            () if next.is_empty() => Left::Nothing,
            () if next == report.actions || (next.create_sandbox && report.actions.create_sandbox) => Left::TheSame,
            () => Left::More,
        };
        if !self.has_started {
            self.pulled += report.waited_for_images;
            self.told_started();
        }
        let next = next_look(&report, left, shared.wall_clock(), options, &mut self.jitter);
        self.in_a_row = if next == Next::Now { self.in_a_row + 1 } else { 0 };
        if self.in_a_row > IN_A_ROW {
            self.in_a_row = 0;
            return Outcome::Next(Next::After(options.relist));
        }
        Outcome::Next(next)
    }

    /// Runs a sync, during which the pod is observed. A sync that was cancelled and does not end is abandoned.
    async fn do_sync(&self, pod: &Arc<Pod>, observed: &ObservedPod) -> SyncReport {
        let (shared, slot) = (&self.looker.shared, &self.looker.slot);
        let stop = self.stop.child_token();
        slot.sync_begins(&stop, &self.orders);
        let probes = shared.probes.results(&slot.owner.uid);
        let told = |container: &str, waiting: Option<&_>| self.looker.told_start(container, waiting);
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(shared.options.patience).await;
        };
        tokio::select! {
            report = shared.runtime.sync_pod(pod, observed, &probes, &told, &stop) => report,
            never = self.looker.keep_looking() => match never {},
            () = given_up => {
                tracing::warn!(pod = pod.title(), "a sync that was cancelled hangs in the runtime, and is given up");
                SyncReport { cancelled: true, ..SyncReport::default() }
            }
        }
    }

    /// Returns true if the pod has succeeded or failed, or ran for longer than it may.
    fn is_over(&mut self, pod: &Pod) -> bool {
        let mut face = self.looker.slot.face();
        let phase = face.view.as_ref().map(|view| view.status.phase);
        if matches!(phase, Some(Phase::Succeeded | Phase::Failed)) {
            return true;
        }
        let Some(age) = face.age else { return false };
        let Some(view) = &face.view else { return false };
        let Some(end) = PodEnd::deadline(pod, view.status.start_time, age.now(Instant::now())) else { return false };
        let object = object(pod);
        let event =
            EventRef { object: &object, kind: EventType::Normal, reason: "DeadlineExceeded", message: &end.message };
        self.looker.shared.runtime.parts().events.record(event);
        face.ended = Some(end);
        drop(face);
        self.looker.tell();
        true
    }

    /// `wait`, or less where the pod may not run for so long.
    fn before_deadline(&self, pod: &Pod, wait: Duration) -> Duration {
        let left = || {
            let deadline = pod.spec.active_deadline_seconds?;
            let face = self.looker.slot.face();
            let (age, view) = (face.age?, face.view.as_ref()?);
            let ran = age.now(Instant::now()).duration_since(view.status.start_time);
            Duration::try_from(jiff::SignedDuration::from_secs(deadline).saturating_sub(ran)).ok()
        };
        left().map_or(wait, |left| wait.min(left))
    }

    fn told_actions(&self, text: String) {
        let mut face = self.looker.slot.face();
        if face.actions != text {
            face.actions = text;
            drop(face);
            self.looker.tell();
        }
    }

    /// Counts how long the first start took, once all of the pod runs.
    fn told_started(&mut self) {
        let slot = &self.looker.slot;
        let face = slot.face();
        let Some(view) = face.view.as_ref().filter(|view| view.status.phase == Phase::Running) else { return };
        if !view.status.container_statuses.iter().all(|container| container.state.is_running()) {
            return;
        }
        self.has_started = true;
        // What was found running was not started here.
        if self.work == Work::Sync && view.status.start_time >= self.first_told() {
            let apart = self.pulled + initialised_for(&view.status);
            self.looker.shared.options.metrics.pod_started(slot.told_at.elapsed(), apart);
        }
    }

    /// When the pod was told, by the time of day, in whole seconds.
    fn first_told(&self) -> jiff::Timestamp {
        let told = self.looker.slot.told_at.elapsed() + Duration::from_secs(1);
        let ago = jiff::SignedDuration::try_from(told).unwrap_or(jiff::SignedDuration::MAX);
        self.looker.shared.wall_clock().saturating_sub(ago).unwrap_or(jiff::Timestamp::MIN)
    }
}

/// How long the init containers of a pod ran.
fn initialised_for(status: &PodStatus) -> Duration {
    let ran = status.init_container_statuses.iter().filter_map(|container| {
        let end = container.state.terminated()?;
        Duration::try_from(end.finished_at?.duration_since(end.started_at?)).ok()
    });
    ran.sum()
}

/// An error with what is behind it, in one line.
pub(super) fn in_full(error: &PodRuntimeError) -> String {
    format!("{error}: {}", error.source)
}

fn object(pod: &Pod) -> ObjectRef {
    let metadata = &pod.metadata;
    ObjectRef {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        field_path: String::new(),
    }
}
