//! [`PodSync`]: one sync of a pod, the state that all of its steps share, and its result ([`SyncReport`]).

use std::collections::BTreeMap;
use std::time::Duration;

use base::lock::Mutex;
use cri_api::PodSandboxConfig;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::failure::{Halt, StartFailure, SyncStep};
use super::runtime::PodCredentials;
use super::runtime::PodRuntime;
use crate::actions::PodActions;
use crate::config::PodHostname;
use crate::documents::Documents;
use crate::events::PodEvent;
use crate::labels::PodOwner;
use crate::observed::ObservedPod;
use crate::pod::Pod;
use crate::status::CONTAINER_CREATING;
use crate::status::api::Waiting;

type StartReporter<'a> = &'a (dyn Fn(&str, Option<&Waiting>) + Send + Sync);

pub(super) struct PodSync<'a> {
    pub(super) pod_runtime: &'a PodRuntime,
    pub(super) pod: &'a Pod,
    pub(super) owner: PodOwner,
    pub(super) observed: &'a ObservedPod,
    pub(super) report: SyncReport,
    /// Empty until the first step, as the credentials are.
    pub(super) documents: Documents,
    pub(super) credentials: PodCredentials,
    /// The image references of image volumes, or the failures, by volume; only those that were requested so far.
    pub(super) image_volumes: BTreeMap<String, Result<String, StartFailure>>,
    /// Guards the time spent waiting for images.
    pub(super) waited_for_images: Mutex<Duration>,
    pub(super) report_start: StartReporter<'a>,
    pub(super) stop: &'a CancellationToken,
}

/// A sandbox that is ready.
#[derive(Clone, Debug)]
pub(super) struct ReadySandbox {
    pub(super) id: String,
    /// Config of the sandbox.
    pub(super) config: PodSandboxConfig,
    /// Host name of the pod.
    pub(super) hostname: PodHostname,
    /// Addresses of the pod; those of the node for a pod on the node's network.
    pub(super) ips: Vec<String>,
}

impl<'a> PodSync<'a> {
    pub(super) fn new(
        pod_runtime: &'a PodRuntime,
        pod: &'a Pod,
        observed: &'a ObservedPod,
        report_start: StartReporter<'a>,
        stop: &'a CancellationToken,
    ) -> Self {
        Self {
            pod_runtime,
            pod,
            owner: PodOwner::of(pod),
            observed,
            report: SyncReport::default(),
            documents: Documents::default(),
            credentials: PodCredentials::default(),
            image_volumes: BTreeMap::new(),
            waited_for_images: Mutex::default(),
            report_start,
            stop,
        }
    }

    /// Records an event about the pod.
    pub(super) fn record_pod_event(&self, event: &PodEvent<'_>) {
        self.pod_runtime.record_event(&self.owner, None, event);
    }

    /// Records the outcome of a container's start.
    pub(super) fn set_outcome(&mut self, name: &str, waiting: Option<Waiting>) {
        (self.report_start)(name, waiting.as_ref());
        self.report.starts.insert(name.to_owned(), waiting);
    }

    /// Reports that a container runs and waits for its hook or, with `waits` false, that the hook was abandoned.
    pub(super) fn report_running(&self, name: &str, waits: bool) {
        let creating = Waiting { reason: CONTAINER_CREATING.to_owned(), message: String::new() };
        (self.report_start)(name, waits.then_some(&creating));
    }

    /// Fails if a stop was requested.
    pub(super) fn go_on(&self) -> SyncStep {
        if self.stop.is_cancelled() { Err(Halt::Stopped) } else { Ok(()) }
    }

    /// Waits for `work` until a stop is requested.
    pub(super) async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> SyncStep<T> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Halt::Stopped),
            done = work => Ok(done),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SyncReport {
    /// Actions of this sync.
    pub actions: PodActions,
    /// Outcomes of starts, by container: `None` for a success, otherwise the reason of the waiting state. Containers
    /// whose start was not tried are absent.
    pub starts: BTreeMap<String, Option<Waiting>>,
    /// Time at which the first container in back-off may be started.
    pub retry_at: Option<Timestamp>,
    /// True if the runtime's network is not ready.
    pub network_not_ready: bool,
    /// Time spent waiting for images.
    pub waited_for_images: std::time::Duration,
    /// Failures; empty after a success.
    pub errors: Vec<String>,
    /// True if no event of the pod has the message of one of the failures.
    pub has_unrecorded_error: bool,
    /// True if a stop was requested before the sync was done.
    pub cancelled: bool,
}
