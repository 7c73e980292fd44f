//! [`Collects`]: requests about the collection of the images that a command means, in plain data. The process that collects answers
//! them: this one ([`Collection`](super::Collection)), or the agent that has the root or the state
//! ([`RemoteCollection`](super::RemoteCollection)).

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use cri_api::Kind;
use image_manager::ReclaimSpace;
use image_manager::gc::{GcError, Pattern};
use kuberuntime::container_gc::ContainerGcError;

use crate::api::client::AskError;
use crate::api::gc::{CollectPlan, CollectReport, CollectRequest, CollectedContainers, Pin};

/// Answers requests about a collection.
#[async_trait]
pub trait Collects: ReclaimSpace + std::fmt::Debug {
    /// Returns the plan of a collection; nothing is removed.
    async fn plan(&self, request: &CollectRequest) -> Result<CollectPlan, CollectionError>;

    /// Collects.
    async fn collect(&self, request: &CollectRequest) -> Result<CollectReport, CollectionError>;

    /// Returns the node's status of its images and their disk, as JSON.
    async fn status(&self) -> Result<serde_json::Value, CollectionError>;

    /// Returns the leftovers of containers: of a dry run those to remove and those to keep, otherwise the removed ones.
    async fn containers(&self, dry_run: bool) -> Result<CollectedContainers, CollectionError>;

    /// Returns the names of the images by id.
    async fn names(&self) -> Result<BTreeMap<String, Vec<String>>, CollectionError>;

    /// Returns the pins, with the images that each one fits.
    async fn pins(&self) -> Result<Vec<Pin>, CollectionError>;

    /// Pins, and returns these pins, each with whether it is new.
    async fn pin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError>;

    /// Removes pins, and returns them, each with whether it was there.
    async fn unpin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError>;

    /// Has this image removed after all others for a while, because it was pulled ahead of its use.
    async fn protect(&self, id: &str) -> Result<(), CollectionError>;
}

/// Failure of the collecting process, or of the call to it.
#[derive(Debug, thiserror::Error)]
pub enum CollectionError {
    /// The image manager failed: in a round, a plan, the status, or a change of pins.
    #[error(transparent)]
    Images(#[from] GcError),
    /// The containers that could be collected were not listed.
    #[error(transparent)]
    Containers(#[from] ContainerGcError),
    /// The image service did not list its images.
    #[error("list images")]
    ListImages(#[source] cri_api::Error),
    /// The engine or the runtime did not list the layers of its images.
    #[error("list layers")]
    ListLayers(#[source] cri_api::Error),
    /// The goal is an amount of free bytes, and the image file system cannot be measured.
    #[error("the image file system cannot be measured")]
    NotMeasured,
    /// Containers are to be collected, and there is no runtime that could list them.
    #[error("no container runtime is configured: --runtime-endpoint names its socket")]
    NoRuntime,
    /// The images in use are unknown, so nothing is removed.
    #[error(
        "it is not known which containers there are, and their images must stay: {0}; --runtime-endpoint names the runtime"
    )]
    ContainersUnknown(String),
    /// The agent on the socket collects the images of a runtime, and those of the embedded store were meant.
    #[error("the agent on {} collects the images of {images}, not those of the store", socket.display())]
    OtherImages {
        /// Path of the agent's socket.
        socket: PathBuf,
        /// Endpoint of the runtime whose images the agent collects.
        images: String,
    },
    /// The node's status cannot be written as JSON.
    #[error("write the status")]
    Status(#[source] serde_json::Error),
    /// The agent that collects did not answer, or refused.
    #[error(transparent)]
    Agent(#[from] AskError),
}

impl CollectionError {
    /// Returns the kind of the call that failed.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Images(GcError::Runtime { source, .. })
            | Self::Containers(ContainerGcError::List { source, .. })
            | Self::ListImages(source)
            | Self::ListLayers(source) => source.kind(),
            Self::Agent(error) => error.kind(),
            _ => Kind::Unknown,
        }
    }
}

/// Returns an error and its causes in one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    cri_api::Error::from_source(Kind::Unknown, error).message().to_owned()
}
