//! [`DesiredPods`]: the pods that should be on this node, of all sources together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pod::Pod;

/// The pods that should be on this node, of all sources.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// Pods by uid.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// True once every source has reported. Before that, a pod that is not in here may only be late.
    pub ready: bool,
    /// Origins whose manifests are there and cannot be read or are not valid now, and of which nothing better is known:
    /// what runs from them stays as it is.
    pub held: BTreeSet<String>,
    /// Manifests that were refused.
    pub refused: Vec<RefusedManifest>,
}

/// A manifest that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedManifest {
    /// Path or address.
    pub origin: String,
    /// Namespace and name of the pod, where they are known.
    pub pod: Option<String>,
    /// Why.
    pub reason: String,
}
