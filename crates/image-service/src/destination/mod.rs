//! [`Destination`]: the place where the images of an engine go: its own store ([`own_store`]), or the store of a container runtime
//! ([`runtime_store`]). A destination knows images and layers, and neither the pulls that fetch them nor their sources. A new
//! destination is one more implementation of these two traits.

pub(crate) mod image;
pub(crate) mod own_store;
pub(crate) mod runtime_store;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Error, Result};
use oci::{Digest, Reference};
use signature::Signature;
use store::Lease;
use tokio::sync::mpsc;

use crate::background::BlockingDrop;
use crate::in_flight::ReadyLayer;
use crate::origin::{Access, Origin};
use crate::signatures::FinalCheck;
use image::{Assembled, ChainLink, NewImage, PresentLayer};

/// A place where images go.
#[async_trait]
pub(crate) trait Destination: Send + Sync {
    /// Returns the signatures that are kept with the image of this name and ID.
    async fn signatures(&self, name: &Reference, id: &Digest) -> Result<Vec<Signature>>;

    /// Returns the config of the image if it is present and a pull would change nothing. The config may be empty if the platform
    /// of the image is known.
    async fn find_unchanged(&self, image: &NewImage) -> Result<Option<Vec<u8>>>;

    /// Records that a pull has accepted the unchanged image.
    async fn accept_unchanged(&self, _image: &NewImage) {}

    /// Begins to write an image.
    async fn begin(&self, image: Arc<NewImage>) -> Result<Arc<dyn ImageWriter>>;
}

/// Writes one image into a destination. The pull ends with [`ImageWriter::finish`] or [`ImageWriter::fail`].
#[async_trait]
pub(crate) trait ImageWriter: Send + Sync {
    /// Returns the lease under which layers are unpacked.
    fn lease(&self) -> &Arc<BlockingDrop<Lease>>;

    /// Returns the layers of these links that are present, and keeps them until the end.
    async fn find_present(&self, links: Vec<ChainLink>) -> Result<Vec<Option<PresentLayer>>>;

    /// Returns the access of a pull from `origin`, whose manifest names `blob` for it, to the layer on this link.
    async fn access(&self, origin: &Origin, blob: &Digest, link: &ChainLink) -> Access;

    /// Writes layers while others are being fetched. Returns when all layers are written, or when nothing can be written before
    /// the commit.
    async fn write_layers(&self, _events: LayerEvents) -> std::result::Result<(), WriteError> {
        Ok(())
    }

    /// Makes the image visible, after `check` has accepted it.
    async fn commit(&self, layers: Assembled, check: FinalCheck) -> std::result::Result<(), WriteError>;

    /// Ends a successful pull.
    async fn finish(&self) {}

    /// Undoes a failed pull, except for the content that a later pull can use.
    async fn fail(&self, _why: &Error) {}
}

/// The reason why an image could not be written.
pub(crate) enum WriteError {
    /// Another image has taken the layer for this chain, so that it must be fetched for this image alone; with the error for the
    /// last attempt.
    LayerTaken {
        chain_id: Digest,
        error: Error,
    },
    Failed(Error),
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// An event of the layers of an image.
pub(crate) enum LayerEvent {
    /// The config is known: the links of all layers, and those that are present.
    Planned { config: Bytes, chain: Vec<ChainLink>, present: Vec<Option<PresentLayer>> },
    /// Another pull has committed the layer of this place.
    Present { place: usize, layer: PresentLayer },
    /// The layer of this place is unpacked.
    Ready { place: usize, layer: ReadyLayer },
}

/// The events of the layers of an image, in order. They end early if the pull fails.
pub(crate) struct LayerEvents(mpsc::UnboundedReceiver<LayerEvent>);

/// Sends the events of the layers of an image.
pub(crate) struct LayerEventSender(mpsc::UnboundedSender<LayerEvent>);

/// Makes the two ends of the events of an image.
pub(crate) fn layer_events() -> (LayerEventSender, LayerEvents) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (LayerEventSender(sender), LayerEvents(receiver))
}

impl LayerEventSender {
    /// Sends an event. A writer that does not receive it has returned, with the reason.
    pub(crate) fn send(&self, event: LayerEvent) {
        let _ = self.0.send(event);
    }
}

impl LayerEvents {
    pub(crate) async fn next(&mut self) -> Option<LayerEvent> {
        self.0.recv().await
    }

    /// Returns the next event if there is one already.
    pub(crate) fn try_next(&mut self) -> Option<LayerEvent> {
        self.0.try_recv().ok()
    }
}
