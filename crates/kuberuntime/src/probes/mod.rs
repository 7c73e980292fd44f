//! [`ProbeManager`]: runs the probes of running containers, on their periods, and keeps their last results. It stops no
//! container; it reports that a result changed, and the sync of the pod decides.
//!
//! A probe that is waiting for its turn is one sleeping task. A container that does not run, whose startup probe has not
//! succeeded, or that failed for good, has none.

mod kind;
mod metrics;
mod schedule;
mod state;

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use cri_api::ContainerState;
use image_manager::{EventRecorder, WallClock};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::actions::ProbeResults;
use crate::events::PodEvent;
use crate::handlers::{HandlerTarget, Handlers};
use crate::labels::PodOwner;
use crate::observed::ObservedPod;
use crate::pod::{Container, ContainerKind, Pod};
use crate::probe::ProbeOutcome;
pub(crate) use kind::ProbeKind;
use kind::container_at;
pub use metrics::ProbeMetrics;
use metrics::ProbeSeries;
use schedule::{Circumstances, first_delay};
use state::{AnswerEffect, ProbeStart, ProbedPods};

/// Runs the probes of all pods. Dropping it stops them.
pub struct ProbeManager {
    shared: Arc<ProbeContext>,
    tasks: TaskTracker,
    _stop: DropGuard,
}

struct ProbeContext {
    handlers: Arc<Handlers>,
    events: Arc<dyn EventRecorder>,
    changed: UnboundedSender<String>,
    wall_clock: WallClock,
    metrics: Arc<ProbeMetrics>,
    began: Instant,
    stop: CancellationToken,
    /// Guards the known pods, the results of their probes, and the tokens of running probe tasks.
    pods: Mutex<ProbedPods>,
}

/// A probe of a container that runs.
struct ProbeQuestion {
    pod: Arc<Pod>,
    container: (ContainerKind, usize),
    id: String,
    kind: ProbeKind,
    series: ProbeSeries,
}

impl ProbeManager {
    /// Sends a pod's uid to `changed` whenever the result of one of its probes changes. The clock is needed for the age
    /// of containers that ran before this process.
    #[must_use]
    pub fn new(
        handlers: Arc<Handlers>,
        events: Arc<dyn EventRecorder>,
        changed: UnboundedSender<String>,
        wall_clock: WallClock,
    ) -> Self {
        let (stop, metrics) = (CancellationToken::new(), ProbeMetrics::new());
        let shared = ProbeContext {
            handlers,
            events,
            changed,
            wall_clock,
            metrics,
            began: Instant::now(),
            pods: Mutex::new(ProbedPods::new(stop.clone())),
            stop: stop.clone(),
        };
        Self { shared: Arc::new(shared), tasks: TaskTracker::new(), _stop: stop.drop_guard() }
    }

    /// Counts of probe results and their durations, to be registered.
    #[must_use]
    pub fn metrics(&self) -> Arc<ProbeMetrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// Updates the probes of a pod: starts those of running containers, and stops all others. Does not block; called after every
    /// observation of a pod. `host_ip` is used as the address of a pod with the node's network.
    pub fn observe(&self, pod: &Arc<Pod>, observed: &ObservedPod, host_ip: Option<&str>) {
        if probed(pod).next().is_none() {
            return;
        }
        let ip = if pod.spec.host_network { host_ip } else { observed.ips().first().map(String::as_str) };
        let (now, mut pods) = (Instant::now(), self.shared.pods.lock());
        let interval = pods.mark_observed(pod, ip, now);
        for (kind, index, container) in probed(pod) {
            let run = observed.latest(&container.name);
            let Some(run) = run else {
                pods.forget_run(&pod.metadata.uid, &container.name);
                continue;
            };
            let age = (run.state == ContainerState::Running).then(|| {
                let age = age(run.started_at, (self.shared.wall_clock)());
                // A container that began between two observations is no older than the time between them, whatever the
                // clocks say.
                interval.map_or(age, |since| age.min(since))
            });
            for start in pods.run(pod, (kind, index), container, run, age, now) {
                self.ask(start, now);
            }
        }
    }

    /// Returns the last results of a pod's probes, by container ID.
    #[must_use]
    pub fn results(&self, uid: &str) -> ProbeResults {
        self.shared.pods.lock().results(uid)
    }

    /// Stops all probes of a pod that is ending, except for readiness probes.
    pub fn ending(&self, uid: &str) {
        let now = Instant::now();
        let starts = self.shared.pods.lock().ending(uid, now);
        for start in starts {
            self.ask(start, now);
        }
    }

    /// Stops the probes of a pod that was removed.
    pub fn forget(&self, uid: &str) {
        if let Some(pod) = self.shared.pods.lock().forget(uid) {
            for (_, _, container) in probed(&pod) {
                self.shared.metrics.forget(&pod, &container.name);
            }
        }
    }

    /// Stops all probes, and waits until none is running.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn ask(&self, start: ProbeStart, now: Instant) {
        ask(&self.shared, &self.tasks, start, now);
    }
}

/// Returns the containers of a pod that have probes.
fn probed(pod: &Pod) -> impl Iterator<Item = (ContainerKind, usize, &Container)> {
    let sidecars = pod.spec.init_containers.iter().enumerate().filter(|(_, container)| container.is_sidecar());
    let sidecars = sidecars.map(|(index, container)| (ContainerKind::Init, index, container));
    let normal = pod.spec.containers.iter().enumerate();
    let normal = normal.map(|(index, container)| (ContainerKind::Normal, index, container));
    sidecars.chain(normal).filter(|(.., container)| ProbeKind::ALL.iter().any(|kind| kind.of(container).is_some()))
}

/// Returns the time since a start, which is in nanoseconds since the epoch.
fn age(started_at: i64, now: jiff::Timestamp) -> Duration {
    let nanoseconds = now.as_nanosecond().saturating_sub(i128::from(started_at));
    match started_at {
        0 => Duration::ZERO,
        _ => Duration::from_nanos(u64::try_from(nanoseconds.max(0)).unwrap_or(u64::MAX)),
    }
}

/// Begins to ask.
fn ask(shared: &Arc<ProbeContext>, tasks: &TaskTracker, start: ProbeStart, now: Instant) {
    let ProbeStart { pod, container, id, kind, token, age } = start;
    let named = container_at(&pod, container);
    let Some(probe) = named.and_then(|named| kind.of(named)) else { return };
    let name = named.map_or("", |named| &named.name);
    let key = format!("{}/{name}/{}", pod.metadata.uid, kind.as_str());
    let circumstances = Circumstances { age, asking_for: now.duration_since(shared.began), key: &key };
    let first = now + first_delay(kind, probe, &circumstances);
    let series = shared.metrics.series(kind, &pod, name);
    let question = ProbeQuestion { container, id, kind, series, pod };
    let (shared, tasks_of_others) = (Arc::clone(shared), tasks.clone());
    tasks.spawn(async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = question.ask_on(&shared, &tasks_of_others, &token, first) => {}
        }
    });
}

impl ProbeQuestion {
    /// Probes once per period until a result ends the series, or it is cancelled.
    async fn ask_on(&self, shared: &Arc<ProbeContext>, tasks: &TaskTracker, token: &CancellationToken, first: Instant) {
        let Some(container) = container_at(&self.pod, self.container) else { return };
        let Some(probe) = self.kind.of(container) else { return };
        let period = Duration::from_secs(u64::from(probe.period_seconds.unwrap_or_default().max(1).unsigned_abs()));
        let mut turns = tokio::time::interval_at(first, period);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let uid = &self.pod.metadata.uid;
        loop {
            turns.tick().await;
            let ip = shared.pods.lock().ip(uid);
            let named = self.pod.title();
            let target = HandlerTarget::new(container, &self.id, ip.as_deref(), &named);
            let asked = Instant::now();
            let (answer, text) = shared.handlers.ask(probe, &target).await;
            if token.is_cancelled() {
                return;
            }
            self.series.observe(answer, asked.elapsed());
            self.record_event(shared, &container.name, answer, &text);
            let answer = (answer, token);
            let effect =
                shared.pods.lock().record_answer(uid, &container.name, &self.id, self.kind, answer, Instant::now());
            let AnswerEffect { changed, over, starts } = effect;
            for start in starts {
                ask(shared, tasks, start, Instant::now());
            }
            if changed {
                // The receiver is dropped when the agent ends.
                let _received = shared.changed.send(uid.clone());
            }
            if over {
                return;
            }
        }
    }

    fn record_event(&self, shared: &ProbeContext, container: &str, answer: ProbeOutcome, text: &str) {
        let probe = self.kind.as_str();
        let event = match answer {
            ProbeOutcome::Success => return,
            ProbeOutcome::Warning => PodEvent::ProbeWarning { probe, output: text },
            ProbeOutcome::Failure => PodEvent::Unhealthy { probe, output: text },
            ProbeOutcome::Unknown => PodEvent::ProbeErrored { probe, error: text },
        };
        let object = PodOwner::of(&self.pod).object(Some((self.container.0, container)));
        event.record(&*shared.events, &object);
    }
}

#[cfg(test)]
#[path = "../probes_tests.rs"]
mod tests;
