//! Observes a pod and publishes its state: lists it in the runtime, passes running containers to the probes, makes a
//! status. It changes nothing in the runtime. Called by the worker of the pod, also during a long operation on the pod.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::shared::AgentState;
use super::slot::{PodAge, PodRecord, WorkerSlot};
use super::{PodView, WorkerState};
use crate::observed::ObservedPod;
use crate::pod::{Container, ContainerKind, Pod, RestartPolicy};
use crate::status::api::{PodStatus, Waiting};
use crate::status::{StatusInput, pod_status};
use crate::sync::{PodRuntimeError, SyncReport};

/// Least time between two observations of a pod during an operation.
const PAUSE: Duration = Duration::from_millis(200);

/// The observer of one pod.
#[derive(Clone)]
pub(super) struct PodObserver {
    pub(super) shared: Arc<AgentState>,
    pub(super) slot: Arc<WorkerSlot>,
}

impl PodObserver {
    /// Observes the pod in the runtime, and publishes the result.
    pub(super) async fn observe(&self) -> Result<Arc<ObservedPod>, PodRuntimeError> {
        let mut observed = self.shared.runtime.observe(&self.slot.owner.uid).await?;
        // What has nothing in the runtime has a name all the same.
        if !self.slot.owner.name.is_empty() || observed.owner.uid.is_empty() {
            observed.owner = self.slot.owner.clone();
        }
        let observed = Arc::new(observed);
        if let Some(pod) = self.slot.pod() {
            self.shared.probes.observe(&pod, &observed, self.shared.host_ips().first().map(String::as_str));
        }
        self.slot.record().observed = Some(Arc::clone(&observed));
        self.publish();
        Ok(observed)
    }

    /// Observes the pod whenever it is woken, until the future is dropped.
    pub(super) async fn keep_observing(&self) -> Infallible {
        loop {
            self.slot.wake.notified().await;
            // The operation in progress reports errors.
            let _ = self.observe().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Publishes the state of the worker.
    pub(super) fn enter(&self, state: WorkerState) {
        self.slot.record().state = state;
        self.publish();
    }

    /// Publishes an error, or that there is none any more. A new error is logged once.
    pub(super) fn set_error(&self, error: Option<String>) {
        self.publish_error(error, false);
    }

    /// Publishes the errors of a sync. They are logged if no event was, which is in the log already.
    pub(super) fn set_errors(&self, report: &SyncReport) {
        let error = (!report.errors.is_empty()).then(|| report.errors.join("; "));
        self.publish_error(error, !report.has_unrecorded_error);
    }

    fn publish_error(&self, error: Option<String>, is_recorded: bool) {
        let mut record = self.slot.record();
        if record.error == error {
            return;
        }
        let pod = self.slot.owner.title();
        match &error {
            // A runtime that is down is logged once for all pods.
            Some(error) if self.shared.health.is_down() => tracing::debug!(pod, error, "pod waits for the runtime"),
            Some(error) if is_recorded => tracing::debug!(pod, error, "Error syncing pod, will retry"),
            Some(error) => tracing::warn!(pod, error, "Error syncing pod, will retry"),
            None => tracing::debug!(pod, "pod has no error any more"),
        }
        record.error = error;
        drop(record);
        self.publish();
    }

    /// Records the outcome of a start.
    pub(super) fn set_waiting(&self, container: &str, waiting: Option<&Waiting>) {
        let mut record = self.slot.record();
        let before = match waiting {
            Some(waiting) => record.waiting.insert(container.to_owned(), waiting.clone()),
            None => record.waiting.remove(container),
        };
        drop(record);
        if before.as_ref() != waiting {
            self.publish();
        }
    }

    /// Computes the status of the pod, and publishes it if it has changed.
    pub(super) fn publish(&self) {
        let Self { shared, slot } = self;
        let pod = slot.pod();
        let mut record = slot.record();
        if pod.is_none() && slot.owner.name.is_empty() {
            // Only a directory is left of the pod, so there is nothing to publish.
            return;
        }
        let pod = match (&record.ending, pod) {
            (Some(ending), _) => Arc::clone(ending),
            (None, Some(pod)) => pod,
            (None, None) => Arc::new(pod_from_runtime(&slot.owner, record.observed.as_deref())),
        };
        let nothing = ObservedPod::default();
        let observed = record.observed.clone();
        let before = record.before.clone().filter(|_| observed.is_none());
        let make = || {
            pod_status(&StatusInput {
                pod: &pod,
                observed: observed.as_deref().unwrap_or(&nothing),
                probes: &shared.probes.results(&slot.owner.uid),
                waiting: &record.waiting,
                ended: record.ended.as_ref(),
                host_ips: shared.host_ips(),
                runtime_name: shared.runtime_name.get().map_or("", String::as_str),
                previous: record.view.as_ref().map(|view| &view.status).or(record.before.as_deref()),
                now: shared.wall_clock(),
            })
        };
        // Until the runtime has shown the pod, its earlier status stays in force.
        let status = before.map_or_else(make, |before| PodStatus::clone(&before));
        let status = first_start(status, &mut record, shared.wall_clock());
        let (state, actions, error) = (record.state, record.actions.clone(), record.error.clone());
        let view = PodView { pod, status, observed: observed.is_some(), state, actions, error };
        if record.view.as_ref().is_some_and(|published| is_same_view(published, &view)) {
            return;
        }
        let view = Arc::new(view);
        record.view = Some(Arc::clone(&view));
        shared.board.put(&slot.owner, view);
    }
}

fn is_same_view(a: &PodView, b: &PodView) -> bool {
    (Arc::ptr_eq(&a.pod, &b.pod) || a.pod == b.pod)
        && (a.observed, a.state, &a.actions, &a.error, &a.status)
            == (b.observed, b.state, &b.actions, &b.error, &b.status)
}

/// Corrects the start time of a pod that was found running: that is the creation of its sandbox, not the first observation.
fn first_start(mut status: PodStatus, record: &mut PodRecord, now: Timestamp) -> PodStatus {
    let Some(observed) = &record.observed else { return status };
    if record.age.is_none() {
        let made = observed.sandboxes.iter().map(|sandbox| sandbox.created_at).filter(|made| *made > 0).min();
        let made = made.and_then(|made| Timestamp::from_second(made / 1_000_000_000).ok());
        if let Some(made) = made.filter(|made| *made < status.start_time) {
            status.start_time = made;
        }
        record.age = Some(PodAge::new(status.start_time, now, Instant::now()));
    }
    status
}

/// Returns a pod without manifest, from the data in the runtime.
pub(super) fn pod_from_runtime(owner: &crate::labels::PodOwner, observed: Option<&ObservedPod>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid.clone_from(&owner.uid);
    pod.metadata.name.clone_from(&owner.name);
    pod.metadata.namespace.clone_from(&owner.namespace);
    pod.spec.restart_policy = Some(RestartPolicy::Never);
    let mut last = "";
    for run in observed.iter().flat_map(|observed| &observed.containers) {
        if run.name == last {
            continue;
        }
        last = &run.name;
        let container = Container { name: run.name.clone(), image: run.image.clone(), ..Container::default() };
        match run.info.kind {
            Some(ContainerKind::Init) => pod.spec.init_containers.push(container),
            Some(ContainerKind::Normal | ContainerKind::Ephemeral) | None => pod.spec.containers.push(container),
        }
    }
    pod
}
