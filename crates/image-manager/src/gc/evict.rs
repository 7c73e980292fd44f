//! [`EvictPods`]: evicts a pod where removing containers and images has not freed enough, and [`EvictionCause`], the reason.
//! Implemented by the component that runs pods; called by the loop that relieves disk pressure.

use async_trait::async_trait;

use super::eviction::Signal;
use super::pressure::{Layout, Observation};

/// Ends pods under disk pressure.
#[async_trait]
pub trait EvictPods: Send + Sync {
    /// Ends at most one pod. Returns true while the end of a pod is waited for.
    async fn evict_one(&self, cause: &EvictionCause) -> bool;
}

/// A resource of which too little is left, although nothing unused is left to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionCause {
    /// The crossed threshold's signal.
    pub signal: Signal,
    /// The threshold, in bytes or inodes.
    pub threshold: u64,
    /// How much is left, in bytes or inodes.
    pub available: u64,
    /// True if containers' writable layers are on the file system that is short.
    pub writable_layers: bool,
    /// True if logs and volumes of pods are on the file system that is short.
    pub logs_and_volumes: bool,
}

impl EvictionCause {
    pub(super) fn new(observation: &Observation, layout: Layout) -> Self {
        let (writable_layers, logs_and_volumes) = match (layout, observation.of.is_of_images()) {
            (Layout::Shared, _) | (Layout::Split, false) => (true, true),
            (Layout::DedicatedImages, true) => (true, false),
            (Layout::DedicatedImages, false) => (false, true),
            (Layout::Split, true) => (false, false),
        };
        let Observation { threshold, available, of: signal, .. } = *observation;
        Self { signal, threshold, available, writable_layers, logs_and_volumes }
    }
}
