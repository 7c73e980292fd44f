//! An image on its way into a store, as plain values: the layers that are present and the new ones, and the names that it is
//! recorded under.

use std::sync::Arc;

use bytes::Bytes;
use oci::Digest;
use store::{Layer, LayerSource, NewBlob};

use crate::in_flight::ReadyLayer;

/// Names to record for an image, in normal form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) tag: Option<String>,
    pub(crate) repo_digest: Option<String>,
}

/// A complete image that is not yet visible.
pub(crate) struct Assembled {
    pub(crate) config: Bytes,
    /// Lowest first.
    pub(crate) layers: Vec<ImageLayer>,
}

/// A layer of an image.
#[derive(Clone)]
pub(crate) enum ImageLayer {
    /// The layer was present before the pull.
    Present(PresentLayer),
    /// The layer was unpacked for this pull or for one that it joined.
    New(ReadyLayer),
}

/// A layer that is present.
#[derive(Clone)]
pub(crate) enum PresentLayer {
    /// In the engine's own store.
    Own(Layer),
    /// In the runtime's store, on the chain of the image.
    Runtime { diff_id: Digest },
    /// In the runtime's store on another chain, with this chain ID: only a link to its files is needed.
    OtherChain { diff_id: Digest, chain_id: Digest },
}

impl PresentLayer {
    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Own(layer) => &layer.diff_id,
            Self::Runtime { diff_id } | Self::OtherChain { diff_id, .. } => diff_id,
        }
    }

    /// Returns the bytes of the layer's files; zero if only the runtime knows them.
    pub(crate) fn content_bytes(&self) -> u64 {
        match self {
            Self::Own(layer) => layer.stats.content_bytes,
            Self::Runtime { .. } | Self::OtherChain { .. } => 0,
        }
    }
}

impl ImageLayer {
    /// Returns the bytes on disk that the pull added for the layer.
    pub(crate) fn new_bytes(&self) -> u64 {
        match self {
            Self::Present(_) => 0,
            Self::New(ready) => ready.layer().stats().disk_bytes + ready.blob().map_or(0, |blob| blob.disk_bytes()),
        }
    }

    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Present(layer) => layer.diff_id(),
            Self::New(ready) => &ready.diff_id,
        }
    }

    /// Returns the new blob that is kept with the layer.
    pub(crate) fn blob(&self) -> Option<Arc<NewBlob>> {
        match self {
            Self::Present(_) => None,
            Self::New(ready) => ready.blob(),
        }
    }

    /// Returns the layer as the engine's own store commits it; `None` if the layer is in a runtime's store.
    pub(crate) fn source(&self) -> Option<LayerSource> {
        match self {
            Self::Present(PresentLayer::Own(layer)) => Some(LayerSource::Present(layer.clone())),
            Self::Present(_) => None,
            Self::New(ready) => Some(LayerSource::New { layer: ready.layer(), diff_id: ready.diff_id.clone() }),
        }
    }
}
