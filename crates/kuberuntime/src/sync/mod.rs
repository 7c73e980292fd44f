//! [`PodRuntime`]: the hands. It looks at a pod, does what [`compute_pod_actions`](crate::compute_pod_actions) says in the
//! kubelet's order, ends pods and takes them away. It holds no pod and no time table: a worker calls it, one call at a time
//! for each pod. What it keeps between two calls (delays of restarts, images that come ahead of their turn, hooks that
//! were run) may be lost at any moment; what counts stands in the runtime.

mod image_volumes;
mod images;
mod kill;
mod messages;
mod metrics;
mod observe;
mod prefetch;
mod remove;
mod sandbox;
mod start;
mod steps;

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use base::blocking as on_disk;
use cri_api::{DnsConfig, Kind, RuntimeService};
use image_manager::{EventRecorder, EventRef, ImageManager, ObjectRef, PullSecret, ServiceAccount, WallClock};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::actions::{PodActions, ProbeResults};
use crate::config::{ClusterDns, NodeResources};
use crate::container_gc::LogDirectories;
use crate::documents::Documents;
use crate::environment::Surroundings;
use crate::events::PodEvent;
use crate::handlers::Handlers;
use crate::labels::Owner;
use crate::pod::{ContainerKind, Pod};
use crate::restart_backoff::RestartBackoff;
use crate::status::ObservedPod;
use crate::status::api::Waiting;
use crate::volumes::Volumes;
pub use metrics::PodMetrics;
use prefetch::Prefetch;

/// What a pod may pull with.
#[derive(Clone, Debug, Default)]
pub struct PodCredentials {
    /// Its pull secrets, in its order.
    pub secrets: Vec<PullSecret>,
    /// The names of those that nobody could find.
    pub missing: Vec<String>,
    /// Its account.
    pub account: Option<ServiceAccount>,
}

/// Tells what a pod may pull with.
pub type CredentialsOf = Arc<dyn Fn(&Pod) -> PodCredentials + Send + Sync>;
/// Tells the documents of a namespace.
pub type DocumentsOf = Arc<dyn Fn(&str) -> Documents + Send + Sync>;

/// What the hands work with.
#[derive(Clone)]
pub struct PodRuntimeParts {
    /// Where pods run.
    pub runtime: Arc<dyn RuntimeService>,
    /// Who makes sure of images.
    pub images: Arc<ImageManager>,
    /// Where events go.
    pub events: Arc<dyn EventRecorder>,
    /// The directories of pods.
    pub volumes: Arc<Volumes>,
    /// Who runs hooks.
    pub handlers: Arc<Handlers>,
    /// What pods may pull with.
    pub credentials: CredentialsOf,
    /// The documents that pods name.
    pub documents: DocumentsOf,
    /// What the node is like.
    pub node: NodeFacts,
}

/// What the node is like.
#[derive(Clone)]
pub struct NodeFacts {
    /// Name, addresses, and what pods may use; the pod's own addresses are filled in.
    pub around: Surroundings,
    /// What of it the sums of resources need.
    pub resources: NodeResources,
    /// What its own resolver file says.
    pub dns: DnsConfig,
    /// Name servers of a cluster.
    pub cluster_dns: ClusterDns,
    /// What its own hosts file says: for pods with its network.
    pub hosts_file: String,
    /// Below it, the directories of pods' logs.
    pub pod_logs: String,
    /// Below it, the links to logs that collectors of logs know; `None`: none are made.
    pub container_logs: Option<String>,
    /// The cgroup of pods; empty: the runtime's choice.
    pub cgroup_parent: String,
    /// The longest delay of CrashLoopBackOff.
    pub longest_restart_delay: std::time::Duration,
    /// The time of day.
    pub wall_clock: WallClock,
}

/// What a sync came to.
#[derive(Clone, Debug, Default)]
pub struct SyncReport {
    /// What was to be done.
    pub actions: PodActions,
    /// What starts came to, by containers: `None`, it went well; why it waits otherwise. Containers that nobody tried to
    /// start are not named.
    pub starts: BTreeMap<String, Option<Waiting>>,
    /// When the first container that waits out its back-off may be started.
    pub retry_at: Option<Timestamp>,
    /// The runtime's network is not ready.
    pub network_not_ready: bool,
    /// How long it waited for images.
    pub waited_for_images: std::time::Duration,
    /// What failed, for people; empty: it went well.
    pub errors: Vec<String>,
    /// It was asked to stop before it was done.
    pub cancelled: bool,
}

/// Why a pod could not be observed, ended or removed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct PodRuntimeError {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    #[source]
    pub source: cri_api::Error,
}

/// The hands.
pub struct PodRuntime {
    parts: PodRuntimeParts,
    metrics: Arc<PodMetrics>,
    /// Images that come ahead of their turn.
    prefetch: Prefetch,
    /// Guards the delays of restarts, by the uids of pods.
    backoff: Mutex<HashMap<String, RestartBackoff>>,
    /// Guards the ids of containers whose end was told and whose hook was run, by the uids of pods: whoever ends them once
    /// more, because the first time failed or took too long, does neither again.
    ending: Mutex<HashMap<String, HashSet<String>>>,
    /// Guards the uids of pods that were told that there is no network for them: once is enough.
    without_network: Mutex<HashSet<String>>,
}

impl PodRuntime {
    /// Works with these.
    #[must_use]
    pub fn new(parts: PodRuntimeParts) -> Self {
        let prefetch = Prefetch::new(Arc::clone(&parts.images));
        Self {
            parts,
            metrics: Arc::default(),
            prefetch,
            backoff: Mutex::default(),
            ending: Mutex::default(),
            without_network: Mutex::default(),
        }
    }

    /// What it works with.
    #[must_use]
    pub fn parts(&self) -> &PodRuntimeParts {
        &self.parts
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<PodMetrics> {
        &self.metrics
    }

    /// What the runtime shows of one pod.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub async fn observe(&self, uid: &str) -> Result<ObservedPod, PodRuntimeError> {
        observe::observe(&*self.parts.runtime, uid).await
    }

    /// Does what the pod needs done. When `stop` is cancelled it waits for no image, no hook and no container to end, and
    /// begins no further step; calls of the runtime that make or start something and have begun are waited for. `told`
    /// hears of each start as soon as its outcome is known.
    pub async fn sync_pod(
        &self,
        pod: &Pod,
        observed: &ObservedPod,
        probes: &ProbeResults,
        told: &(dyn Fn(&str, Option<&Waiting>) + Send + Sync),
        stop: &CancellationToken,
    ) -> SyncReport {
        steps::PodSync::new(self, pod, observed, told, stop).run(probes).await
    }

    /// Ends everything of a pod that runs: preStop hooks, then containers in the order of termination, then sandboxes.
    /// `pod` is `None` for a pod that nobody knows any more. A shorter `grace` goes before all others. Whoever wants it to
    /// go faster drops the future and calls again: no hook is then run a second time.
    ///
    /// # Errors
    /// What still runs, or may.
    pub async fn end_pod(
        &self,
        pod: Option<&Pod>,
        observed: &ObservedPod,
        grace: Option<i64>,
    ) -> Result<(), PodRuntimeError> {
        self.prefetch.forget(&observed.owner.uid);
        kill::kill_pod(self, pod, observed, grace).await
    }

    /// Takes away everything of a pod that was ended: containers, sandboxes, volumes, logs. Idempotent. Where something
    /// cannot be removed the rest goes all the same, but for what it may still use.
    ///
    /// # Errors
    /// What is still there.
    pub async fn remove_pod(&self, observed: &ObservedPod) -> Result<(), PodRuntimeError> {
        remove::remove_pod(self, observed).await
    }

    /// Forgets what it keeps of pods that are gone, such as delays of restarts.
    pub fn collect(&self) {
        let now = (self.parts.node.wall_clock)();
        self.backoff.lock().retain(|_, backoff| {
            backoff.collect(now);
            !backoff.is_empty()
        });
    }

    /// Ends the pulls that run ahead, and waits for their ends.
    pub async fn shutdown(&self) {
        self.prefetch.shutdown().await;
    }

    /// Forgets what it keeps of a pod.
    fn forget(&self, uid: &str) {
        self.prefetch.forget(uid);
        self.backoff.lock().remove(uid);
        self.ending.lock().remove(uid);
        self.without_network.lock().remove(uid);
    }

    /// Where logs are.
    fn logs(&self) -> LogDirectories {
        let node = &self.parts.node;
        LogDirectories { pods: PathBuf::from(&node.pod_logs), links: node.container_logs.as_ref().map(PathBuf::from) }
    }

    /// Tells an event about a part of a pod: a container, or, without one, the pod.
    fn tell(&self, owner: &Owner, part: Option<(ContainerKind, &str)>, event: &PodEvent<'_>) {
        let field_path = part.map_or_else(String::new, |(kind, name)| format!("spec.{}{{{name}}}", kind.field()));
        let object = ObjectRef {
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            field_path,
        };
        let message = event.message();
        let (kind, reason) = (event.kind(), event.reason());
        self.parts.events.record(EventRef { object: &object, kind, reason, message: &message });
    }
}

/// Whose things are those of a pod.
fn owner_of(pod: &Pod) -> Owner {
    let metadata = &pod.metadata;
    Owner { uid: metadata.uid.clone(), name: metadata.name.clone(), namespace: metadata.namespace.clone() }
}

/// What is gone already need not be stopped or removed.
fn gone_is_done(result: cri_api::Result<()>) -> cri_api::Result<()> {
    match result {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        result => result,
    }
}

/// Several failures as one: all of them by their names, with the cause of the first.
fn first_of(failures: Vec<PodRuntimeError>) -> Result<(), PodRuntimeError> {
    let what = failures.iter().map(|failure| failure.what.as_str()).collect::<Vec<_>>().join(", ");
    failures.into_iter().next().map_or(Ok(()), |first| Err(PodRuntimeError { what, source: first.source }))
}

#[cfg(test)]
#[path = "tests/mod.rs"]
pub(crate) mod tests;
