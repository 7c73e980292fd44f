//! [`ProbedPods`]: the state of the probes of all pods: the last result of each, how often in a row it occurred, and
//! which probes run. Runs no probe and reads no clock; returns [`ProbeStart`]s. Called by [`super::ProbeManager`] under
//! its lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::ContainerState;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kind::{ProbeKind, container_at};
use crate::actions::{ProbeResult, ProbeResults, Probed};
use crate::observed::ObservedContainer;
use crate::pod::{Container, ContainerKind, Pod, Probe};
use crate::probe::ProbeOutcome;

/// A probe that is to be asked from now on, until the token is cancelled.
pub(super) struct ProbeStart {
    pub(super) pod: Arc<Pod>,
    pub(super) container: (ContainerKind, usize),
    pub(super) id: String,
    pub(super) kind: ProbeKind,
    pub(super) token: CancellationToken,
    /// Time since the start of the container.
    pub(super) age: Duration,
}

#[derive(Default)]
pub(super) struct AnswerEffect {
    /// The result is another one than before.
    pub(super) changed: bool,
    /// This probe is not asked any more.
    pub(super) over: bool,
    /// Probes that waited for this one.
    pub(super) starts: Vec<ProbeStart>,
}

pub(super) struct ProbedPods {
    by_uid: BTreeMap<String, ProbedPod>,
    /// Ends all questions.
    stop: CancellationToken,
}

struct ProbedPod {
    pod: Arc<Pod>,
    ip: Option<String>,
    looked: Instant,
    ending: bool,
    /// The newest run of each container, by name.
    runs: BTreeMap<String, ProbedRun>,
}

struct ProbedRun {
    id: String,
    container: (ContainerKind, usize),
    /// Known start of the container; `None` if it does not run.
    since: Option<Since>,
    probes: BTreeMap<ProbeKind, ProbeState>,
}

#[derive(Clone, Copy)]
struct Since {
    seen: Instant,
    age: Duration,
}

/// A probe of one run.
struct ProbeState {
    probe: Probe,
    result: ProbeResult,
    /// Last result, and its number in a row.
    streak: Option<(ProbeResult, i32)>,
    /// Task that asks.
    asking: Option<Asking>,
    /// True if the probe has given its result, or its container is being ended because of it.
    held: bool,
}

/// Cancels the questions of a probe when it is dropped.
struct Asking(CancellationToken);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl ProbeState {
    fn new(kind: ProbeKind, probe: &Probe) -> Self {
        // Before the first answer the container is alive and not ready, and it is unknown whether it has started.
        let result = match kind {
            ProbeKind::Startup => ProbeResult::Unknown,
            ProbeKind::Liveness => ProbeResult::Success,
            ProbeKind::Readiness => ProbeResult::Failure,
        };
        Self { probe: probe.clone(), result, streak: None, asking: None, held: false }
    }

    /// Takes an answer; whether the result is another one.
    fn take(&mut self, kind: ProbeKind, answer: ProbeOutcome) -> bool {
        let said = match answer {
            ProbeOutcome::Success | ProbeOutcome::Warning => ProbeResult::Success,
            ProbeOutcome::Failure => ProbeResult::Failure,
            ProbeOutcome::Unknown => return false,
        };
        let row = match self.streak {
            Some((last, row)) if last == said => row.saturating_add(1),
            _ => 1,
        };
        self.streak = Some((said, row));
        let threshold =
            if said == ProbeResult::Failure { self.probe.failure_threshold } else { self.probe.success_threshold };
        if row < threshold.unwrap_or_default() {
            return false;
        }
        // A container that is to be ended is left alone until another one is there.
        if kind == ProbeKind::Startup || (kind == ProbeKind::Liveness && said == ProbeResult::Failure) {
            self.held = true;
        }
        std::mem::replace(&mut self.result, said) != said
    }
}

impl ProbedRun {
    fn started(&self) -> bool {
        self.probes.get(&ProbeKind::Startup).is_none_or(|startup| startup.result == ProbeResult::Success)
    }

    /// Decides which probes run, cancels the others, and returns those to start.
    fn plan(&mut self, pod: &Arc<Pod>, ending: bool, stop: &CancellationToken, now: Instant) -> Vec<ProbeStart> {
        let (mut starts, started) = (Vec::new(), self.started());
        for (kind, state) in &mut self.probes {
            let wanted = !state.held
                && match kind {
                    ProbeKind::Startup => !started && !ending,
                    ProbeKind::Liveness => started && !ending,
                    ProbeKind::Readiness => started,
                };
            let Some(since) = self.since.filter(|_| wanted) else {
                state.asking = None;
                continue;
            };
            if state.asking.is_none() {
                let token = stop.child_token();
                state.asking = Some(Asking(token.clone()));
                starts.push(ProbeStart {
                    pod: Arc::clone(pod),
                    container: self.container,
                    id: self.id.clone(),
                    kind: *kind,
                    token,
                    age: since.age + now.duration_since(since.seen),
                });
            }
        }
        starts
    }
}

impl ProbedPods {
    /// Creates a state without pods; all probes end with `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { by_uid: BTreeMap::new(), stop }
    }

    /// Records an observation of a pod, and returns the time since the one before.
    pub(super) fn mark_observed(&mut self, pod: &Arc<Pod>, ip: Option<&str>, now: Instant) -> Option<Duration> {
        let Some(entry) = self.by_uid.get_mut(&pod.metadata.uid) else {
            let entry = ProbedPod {
                pod: Arc::clone(pod),
                ip: ip.map(str::to_owned),
                looked: now,
                ending: pod.metadata.deletion_timestamp.is_some(),
                runs: BTreeMap::new(),
            };
            self.by_uid.insert(pod.metadata.uid.clone(), entry);
            return None;
        };
        let since = now.duration_since(std::mem::replace(&mut entry.looked, now));
        entry.pod = Arc::clone(pod);
        if entry.ip.as_deref() != ip {
            entry.ip = ip.map(str::to_owned);
        }
        // What a pod no longer has is not asked.
        let named = |container: (ContainerKind, usize), name: &str| {
            container_at(pod, container).is_some_and(|container| container.name == name)
        };
        entry.runs.retain(|name, run| named(run.container, name));
        Some(since)
    }

    /// Records a container of the runtime. `age` is its age unless it was known before, or `None` if it does not run.
    pub(super) fn run(
        &mut self,
        pod: &Arc<Pod>,
        container: (ContainerKind, usize),
        spec: &Container,
        observed: &ObservedContainer,
        age: Option<Duration>,
        now: Instant,
    ) -> Vec<ProbeStart> {
        let Some(entry) = self.by_uid.get_mut(&pod.metadata.uid) else { return Vec::new() };
        let ending = entry.ending;
        let run = entry.runs.entry(spec.name.clone()).or_insert_with(|| ProbedRun::new(observed, container));
        if run.id != observed.id {
            *run = ProbedRun::new(observed, container);
        }
        run.container = container;
        for kind in ProbeKind::ALL {
            match kind.of(spec) {
                None => {
                    run.probes.remove(&kind);
                }
                Some(probe) => {
                    let state = run.probes.entry(kind).or_insert_with(|| ProbeState::new(kind, probe));
                    if state.probe != *probe {
                        // The last result is kept; the new definition applies from now on.
                        (state.probe, state.asking) = (probe.clone(), None);
                    }
                }
            }
        }
        run.since = age.map(|age| run.since.unwrap_or(Since { seen: now, age }));
        let ended = observed.state == ContainerState::Exited;
        if age.is_none() && observed.state != ContainerState::Created {
            for (kind, state) in &mut run.probes {
                if ended || *kind == ProbeKind::Readiness {
                    (state.result, state.streak) = (ProbeResult::Failure, None);
                }
            }
        }
        if ending {
            run.end();
        }
        run.plan(pod, ending, &self.stop, now)
    }

    /// Forgets the run of a container that the runtime no longer lists.
    pub(super) fn forget_run(&mut self, uid: &str, name: &str) {
        if let Some(entry) = self.by_uid.get_mut(uid) {
            entry.runs.remove(name);
        }
    }

    /// Returns the address of a pod.
    pub(super) fn ip(&self, uid: &str) -> Option<String> {
        self.by_uid.get(uid)?.ip.clone()
    }

    /// Last results of a pod's probes.
    pub(super) fn results(&self, uid: &str) -> ProbeResults {
        let Some(entry) = self.by_uid.get(uid) else { return ProbeResults::default() };
        let probed = |run: &ProbedRun| {
            let result = |kind| run.probes.get(&kind).map(|state| state.result);
            Probed {
                liveness: result(ProbeKind::Liveness),
                readiness: result(ProbeKind::Readiness),
                startup: result(ProbeKind::Startup),
            }
        };
        ProbeResults(entry.runs.values().map(|run| (run.id.clone(), probed(run))).collect())
    }

    /// Records that the pod is ending.
    pub(super) fn ending(&mut self, uid: &str, now: Instant) -> Vec<ProbeStart> {
        let Some(entry) = self.by_uid.get_mut(uid) else { return Vec::new() };
        entry.ending = true;
        let mut starts = Vec::new();
        for run in entry.runs.values_mut() {
            run.end();
            starts.extend(run.plan(&entry.pod, true, &self.stop, now));
        }
        starts
    }

    /// Forgets a pod that was removed.
    pub(super) fn forget(&mut self, uid: &str) -> Option<Arc<Pod>> {
        self.by_uid.remove(uid).map(|entry| entry.pod)
    }

    /// Records the answer to a probe. An answer that arrives after its question was cancelled does not count.
    pub(super) fn record_answer(
        &mut self,
        uid: &str,
        name: &str,
        id: &str,
        kind: ProbeKind,
        (answer, token): (ProbeOutcome, &CancellationToken),
        now: Instant,
    ) -> AnswerEffect {
        let over = AnswerEffect { over: true, ..AnswerEffect::default() };
        if token.is_cancelled() {
            return over;
        }
        let Some(entry) = self.by_uid.get_mut(uid) else { return over };
        let Some(run) = entry.runs.get_mut(name).filter(|run| run.id == id) else { return over };
        let Some(state) = run.probes.get_mut(&kind) else { return over };
        let changed = state.take(kind, answer);
        let over = state.held;
        let starts = if over { run.plan(&entry.pod, entry.ending, &self.stop, now) } else { Vec::new() };
        AnswerEffect { changed, over, starts }
    }
}

impl ProbedRun {
    fn new(observed: &ObservedContainer, container: (ContainerKind, usize)) -> Self {
        Self { id: observed.id.clone(), container, since: None, probes: BTreeMap::new() }
    }

    /// Prevents restarts in a pod that is being ended.
    fn end(&mut self) {
        for (kind, state) in &mut self.probes {
            if *kind != ProbeKind::Readiness {
                state.result = ProbeResult::Success;
            }
        }
    }
}
