//! [`RuntimePins`]: pins of imagelet that a container runtime reports to its other clients, such as a kubelet. A plain trait; the only
//! implementation is that of containerd. Called by image collection.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::Result;

/// Pins of images in a container runtime.
#[async_trait]
pub trait RuntimePins: Send + Sync {
    /// Has the runtime report the present images with these IDs as pinned, and no others that were pinned by an earlier call. Pins of
    /// other programs stay as they are. A runtime that takes no pins is left alone. Returns the number of images that changed.
    ///
    /// # Errors
    /// The runtime did not answer. Pins of other images have been written nevertheless.
    async fn replace(&self, ids: &BTreeSet<String>) -> Result<usize>;

    /// Returns the names and IDs of the images that other programs have pinned; `None` if the runtime does not report who pinned an image.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn pinned_by_others(&self) -> Result<Option<BTreeSet<String>>>;
}
