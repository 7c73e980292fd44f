//! Content of the sources: [`SourceView`] of one source, [`DesiredPods`] of all together. Plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::manifest::{ManifestContent, ManifestProblem};
use crate::identity::API_SOURCE;
use crate::pod::Pod;
use crate::status::api::PodStatus;

/// Present content of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    /// True once the source knows its content.
    pub(super) ready: bool,
    /// Path or address of the source while its content cannot be read.
    pub(super) unread: Option<String>,
    /// True for the pods of an API server.
    pub(super) is_cluster: bool,
    /// Problem of the source as a whole, with the source's display name.
    pub(super) problem: Option<(String, ManifestProblem)>,
    pub(super) manifests: Vec<SourceManifest>,
}

/// A file, or the answer of an address.
#[derive(Clone, Debug)]
pub(super) struct SourceManifest {
    pub(super) origin: String,
    /// Time at which the manifest was first seen.
    pub(super) since: tokio::time::Instant,
    /// Last valid content.
    pub(super) content: Option<Arc<ManifestContent>>,
    /// True if the present content is not known: it cannot be read, is not valid, or is being written.
    pub(super) held: bool,
    /// The problem, once it has lasted.
    pub(super) problem: Option<ManifestProblem>,
}

/// The pods that should be on this node, of all sources.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// Pods by uid.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Statuses that pods begin with, by uid: those that an API server remembers, and those of pods that were rejected. One
    /// that has ended for good is not started.
    pub statuses: BTreeMap<String, Arc<PodStatus>>,
    /// True once every source has been read. Before that, a pod that is not in here may only be late.
    pub ready: bool,
    /// True once every source has been read, or has reported why it cannot be.
    pub reported: bool,
    /// True once the API server has reported its pods; `None` where there is none.
    pub cluster_ready: Option<bool>,
    /// Paths and addresses of sources that cannot be read now. What runs from them, or from below them, stays as it is.
    pub unread: BTreeSet<String>,
    /// Origins whose manifests are there and cannot be read or are not valid now, and of which nothing better is known:
    /// what runs from them stays as it is.
    pub held: BTreeSet<String>,
    /// Manifests that were refused.
    pub refused: Vec<RefusedManifest>,
}

impl DesiredPods {
    /// Returns true if the pods of this origin are unknown now: its manifest is held, or its source cannot be read.
    #[must_use]
    pub fn holds(&self, origin: &str) -> bool {
        let below = |source: &String| Path::new(origin).starts_with(source);
        self.held.contains(origin) || self.unread.iter().any(below)
    }

    /// Returns true if every source that may have a pod of this origin has been read.
    #[must_use]
    pub fn is_ready_for(&self, origin: &str) -> bool {
        let cluster = self.cluster_ready.filter(|_| origin == API_SOURCE);
        cluster.unwrap_or(self.ready)
    }
}

/// A manifest, or a part of one, that is not taken: unreadable, not valid, or naming a pod or document that another one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedManifest {
    /// Path or address.
    pub origin: String,
    /// Namespace and name of the pod, where they are known.
    pub pod: Option<String>,
    /// Reason for the refusal.
    pub reason: String,
    /// True for objects of kinds that do not run on a node, such as a Deployment: they are skipped, and nothing is wrong with them.
    pub skipped: bool,
}
