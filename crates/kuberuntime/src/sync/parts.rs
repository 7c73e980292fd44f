//! [`PodRuntimeParts`]: everything that the syncs of pods work with.

use std::sync::Arc;

use cri_api::{DnsConfig, RuntimeService};
use image_manager::{EventRecorder, ImageManager, PullSecret, ServiceAccount, WallClock};

use crate::config::{ClusterDns, NodeResources};
use crate::documents::Documents;
use crate::environment::Surroundings;
use crate::handlers::Handlers;
use crate::pod::Pod;
use crate::volumes::Volumes;

/// Credentials that a pod may pull with.
#[derive(Clone, Debug, Default)]
pub struct PodCredentials {
    /// Pull secrets, in the pod's order.
    pub secrets: Vec<PullSecret>,
    /// The names of those that nobody could find.
    pub missing: Vec<String>,
    /// Service account of the pod.
    pub account: Option<ServiceAccount>,
}

/// Tells what a pod may pull with.
pub type CredentialsOf = Arc<dyn Fn(&Pod) -> PodCredentials + Send + Sync>;

/// Tells the documents of a namespace.
pub type DocumentsOf = Arc<dyn Fn(&str) -> Documents + Send + Sync>;

/// Everything that a [`PodRuntime`](super::PodRuntime) works with.
#[derive(Clone)]
pub struct PodRuntimeParts {
    /// Where pods run.
    pub runtime: Arc<dyn RuntimeService>,
    /// Manager that ensures images.
    pub images: Arc<ImageManager>,
    /// Where events go.
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

#[derive(Clone)]
pub struct NodeFacts {
    /// Name, addresses, and what pods may use; the pod's own addresses are filled in.
    pub around: Surroundings,
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
