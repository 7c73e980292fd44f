//! [`PodRuntime`]: its parts, and the state that it keeps between two calls. Its operations are in the other files of
//! this folder.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::lock::Mutex;
use cri_api::{DnsConfig, RuntimeService};
use futures::future::BoxFuture;
use image_manager::{EventRecorder, ImageManager, PullSecret, SandboxImageLookup, ServiceAccount, WallClock};

use super::metrics::PodMetrics;
use super::prefetch::Prefetch;
use crate::config::{ClusterDns, NodeResources};
use crate::container_gc::LogDirectories;
use crate::documents::Documents;
use crate::environment::PodContext;
use crate::events::PodEvent;
use crate::handlers::Handlers;
use crate::labels::PodOwner;
use crate::pod::{ContainerKind, Pod};
use crate::restart_backoff::RestartBackoff;
use crate::volumes::Volumes;

/// The hands.
pub struct PodRuntime {
    pub(super) parts: PodRuntimeParts,
    pub(super) metrics: Arc<PodMetrics>,
    /// Images that are pulled ahead of their use.
    pub(super) prefetch: Prefetch,
    /// Guards the delays of restarts, by the uids of pods.
    pub(super) backoff: Mutex<HashMap<String, RestartBackoff>>,
    /// Guards the ids of containers whose end was reported and whose hook was run, by the uids of pods: when they are
    /// ended once more, because the first time failed or took too long, neither is repeated.
    pub(super) ending: Mutex<HashMap<String, HashSet<String>>>,
    /// Guards the uids of pods whose missing network was reported: once is enough.
    pub(super) without_network: Mutex<HashSet<String>>,
    /// True once the sandbox image was ensured, until the creation of a sandbox fails.
    pub(super) has_sandbox_image: AtomicBool,
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
            has_sandbox_image: AtomicBool::new(false),
        }
    }

    /// Services and facts that pods are run with.
    #[must_use]
    pub fn parts(&self) -> &PodRuntimeParts {
        &self.parts
    }

    /// Counts of pod and container starts, to be registered.
    #[must_use]
    pub fn metrics(&self) -> &Arc<PodMetrics> {
        &self.metrics
    }

    /// Forgets the state of removed pods, such as delays of restarts.
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
    pub(super) fn forget(&self, uid: &str) {
        self.prefetch.forget(uid);
        self.backoff.lock().remove(uid);
        self.ending.lock().remove(uid);
        self.without_network.lock().remove(uid);
    }

    /// Returns the directories of logs.
    pub(super) fn logs(&self) -> LogDirectories {
        let node = &self.parts.node;
        LogDirectories { pods: PathBuf::from(&node.pod_logs), links: node.container_logs.as_ref().map(PathBuf::from) }
    }

    /// Records an event about a part of a pod: a container, or, without one, the pod.
    pub(crate) fn record_event(&self, owner: &PodOwner, part: Option<(ContainerKind, &str)>, event: &PodEvent<'_>) {
        event.record(&*self.parts.events, &owner.object(part));
    }
}

/// Credentials that a pod may pull with.
#[derive(Clone, Debug, Default)]
pub struct PodCredentials {
    /// Pull secrets, in the pod's order.
    pub secrets: Vec<PullSecret>,
    /// The names of secrets that were not found.
    pub missing: Vec<String>,
    /// Service account of the pod.
    pub account: Option<ServiceAccount>,
}

/// Tells what a pod may pull with.
pub type CredentialsOf = Arc<dyn Fn(&Pod) -> PodCredentials + Send + Sync>;

/// Tells the documents that a pod can have. May wait a while for an API server.
pub type DocumentsOf = Arc<dyn Fn(&Pod) -> BoxFuture<'static, Documents> + Send + Sync>;

/// Everything that a [`PodRuntime`] works with.
#[derive(Clone)]
pub struct PodRuntimeParts {
    /// Runtime of the pods.
    pub runtime: Arc<dyn RuntimeService>,
    /// Manager that ensures images.
    pub images: Arc<ImageManager>,
    /// Returns the image that the runtime creates sandboxes from.
    pub sandbox_image: SandboxImageLookup,
    /// Recorder of events.
    pub events: Arc<dyn EventRecorder>,
    /// The directories of pods.
    pub volumes: Arc<Volumes>,
    /// Runner of hooks.
    pub handlers: Arc<Handlers>,
    /// Lookup of the credentials of a pod.
    pub credentials: CredentialsOf,
    /// The documents that pods name.
    pub documents: DocumentsOf,
    /// Facts of the node.
    pub node: NodeFacts,
}

/// Facts of the node that every sync of a pod needs.
#[derive(Clone)]
pub struct NodeFacts {
    /// Name, addresses, and what pods may use; the pod's own addresses are filled in.
    pub context: PodContext,
    /// Facts that the sums of resources need.
    pub resources: NodeResources,
    /// Content of the node's resolver file.
    pub dns: DnsConfig,
    /// Name servers of a cluster.
    pub cluster_dns: ClusterDns,
    /// Content of the node's hosts file, for pods with its network.
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
