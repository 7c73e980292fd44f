//! [`PodRuntime`]: the hands. It looks at a pod, does what [`compute_pod_actions`](crate::compute_pod_actions) says in the
//! kubelet's order, ends pods and takes them away. It holds no pod and no time table: a worker calls it, one call at a time
//! for each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri_api::{DnsConfig, RuntimeService};
use image_manager::{EventRecorder, ImageManager, PullSecret, ServiceAccount, WallClock};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::actions::{PodActions, ProbeResults};
use crate::config::{ClusterDns, NodeResources};
use crate::documents::Documents;
use crate::environment::Surroundings;
use crate::handlers::Handlers;
use crate::pod::Pod;
use crate::status::ObservedPod;
use crate::status::api::Waiting;
use crate::volumes::Volumes;

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
}

impl PodRuntime {
    /// Works with these.
    #[must_use]
    pub fn new(parts: PodRuntimeParts) -> Self {
        Self { parts }
    }

    /// What it works with.
    #[must_use]
    pub fn parts(&self) -> &PodRuntimeParts {
        &self.parts
    }

    /// What the runtime shows of one pod.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub async fn observe(&self, uid: &str) -> Result<ObservedPod, PodRuntimeError> {
        let _ = uid;
        Ok(ObservedPod::default())
    }

    /// Does what the pod needs done. When `stop` is cancelled it waits for no image and begins no further step; calls of
    /// the runtime that have begun are waited for. `told` hears of each start as soon as its outcome is known.
    pub async fn sync_pod(
        &self,
        pod: &Pod,
        observed: &ObservedPod,
        probes: &ProbeResults,
        told: &(dyn Fn(&str, Option<&Waiting>) + Send + Sync),
        stop: &CancellationToken,
    ) -> SyncReport {
        let _ = (pod, observed, probes, told, stop);
        SyncReport::default()
    }

    /// Ends everything of a pod that runs: preStop hooks, then containers in the order of termination, then sandboxes.
    /// `pod` is `None` for a pod that nobody knows any more. A shorter `grace` goes before all others.
    ///
    /// # Errors
    /// What still runs.
    pub async fn end_pod(
        &self,
        pod: Option<&Pod>,
        observed: &ObservedPod,
        grace: Option<i64>,
    ) -> Result<(), PodRuntimeError> {
        let _ = (pod, observed, grace);
        Ok(())
    }

    /// Takes away everything of a pod that was ended: containers, sandboxes, volumes, logs. Idempotent.
    ///
    /// # Errors
    /// What is still there.
    pub async fn remove_pod(&self, observed: &ObservedPod) -> Result<(), PodRuntimeError> {
        let _ = observed;
        Ok(())
    }

    /// Forgets what it keeps of pods that are gone, such as delays of restarts.
    pub fn collect(&self) {}
}
