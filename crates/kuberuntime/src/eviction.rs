//! Eviction: pods are ended when the disk is short although nothing unused is left on it, and when a pod uses more of it than its own
//! limits allow. Order, reasons and messages are the kubelet's. [`Evictor`] measures and ends; `rank` and `exceeded_limit` decide, and are pure.

mod disk_use;
mod evictor;
mod limits;
mod messages;
mod rank;

pub(crate) use disk_use::DiskAmount;
pub use evictor::{Evictor, EvictorParts};

use crate::identity::CONFIG_SOURCE_ANNOTATION;
use crate::pod::Pod;

/// Name of the resource in the requests and limits of containers.
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Returns true for a pod that is never evicted: one of a local manifest, or of a system priority class.
fn is_critical(pod: &Pod) -> bool {
    let is_local = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source != "api");
    is_local || pod.spec.priority.is_some_and(|priority| priority >= manifest::CLUSTER_CRITICAL)
}

#[cfg(test)]
#[path = "eviction/eviction_tests.rs"]
mod tests;
