//! [`Observed`]: the facts behind a Node's status that change while it runs: runtime, images, disk. Plain data and the border behind which
//! they are observed. Called by [`super::NodeKeeper`], implemented by the binary.

use async_trait::async_trait;
use cri_api::RuntimeStatus;
use image_manager::gc::NodeImage;

/// Facts that change while a node runs.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The runtime, or why it did not answer.
    pub runtime: RuntimeReport,
    /// Images, the largest first, as many as a Node's status shows; `None` if they are not known.
    pub images: Option<Vec<NodeImage>>,
    /// Disk pressure; `None` if it was not measured.
    pub disk_pressure: Option<bool>,
    /// The file system of pods; `None` if it was not measured.
    pub disk: Option<Disk>,
}

/// A file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Size of the file system.
    pub capacity: u64,
    /// Bytes that evictions keep free.
    pub kept_free: u64,
}

/// The runtime, by its own report.
#[derive(Clone, Debug, Default)]
pub struct RuntimeReport {
    /// `NAME://VERSION`; `None` where it did not answer.
    pub version: Option<String>,
    /// Conditions, handlers and features, or why nothing is known of them.
    pub status: Option<Result<RuntimeStatus, String>>,
}

/// Observes the node. Takes as long as the runtime takes to answer.
#[async_trait]
pub trait Observe: Send + Sync + 'static {
    /// Returns the current facts.
    async fn observe(&self) -> Observed;
}
