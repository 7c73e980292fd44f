//! Content of the sources: [`SourceView`] of one source, [`DesiredPods`] of all together. Plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::manifest::{ManifestContent, ManifestProblem};
use crate::pod::Pod;
use crate::status::api::PodStatus;

/// Present content of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    /// True once the source knows its content.
    pub(super) ready: bool,
    /// Problem of the source as a whole, with the source's name for people.
    pub(super) problem: Option<(String, ManifestProblem)>,
    pub(super) manifests: Vec<SourceManifest>,
}

/// A file, or the answer of an address.
#[derive(Clone, Debug)]
pub(super) struct SourceManifest {
    pub(super) origin: String,
    /// When it was first there.
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
    /// True once every source has reported. Before that, a pod that is not in here may only be late.
    pub ready: bool,
    /// Origins whose manifests are there and cannot be read or are not valid now, and of which nothing better is known:
    /// what runs from them stays as it is.
    pub held: BTreeSet<String>,
    /// Manifests that were refused.
    pub refused: Vec<RefusedManifest>,
}

/// A manifest, or a part of one, that is not taken: unreadable, not valid, or naming a pod or document that another one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedManifest {
    /// Path or address.
    pub origin: String,
    /// Namespace and name of the pod, where they are known.
    pub pod: Option<String>,
    /// Why, for people.
    pub reason: String,
}
