//! Parts of an image at the end of its assembly, each here already or new. Handed to the commit.

use std::sync::Arc;

use bytes::Bytes;
use oci::Digest;
use store::{Layer, LayerSource, NewBlob};

use super::ready::ReadyLayer;

/// A whole image that is not yet visible.
pub(crate) struct Assembled {
    pub(crate) config: Bytes,
    /// Lowest first.
    pub(crate) layers: Vec<Part>,
}

/// A layer of an image, present or new.
#[derive(Clone)]
pub(crate) enum Part {
    Present(Layer),
    New(ReadyLayer),
}

impl Part {
    /// Bytes that it takes on the disk and that were not taken before.
    pub(crate) fn new_bytes(&self) -> u64 {
        match self {
            Self::Present(_) => 0,
            Self::New(ready) => ready.layer().stats().disk_bytes + ready.blob().map_or(0, |blob| blob.disk_bytes()),
        }
    }

    /// Digest of its tar stream.
    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Present(layer) => &layer.diff_id,
            Self::New(ready) => &ready.diff_id,
        }
    }

    /// The blob that is to be kept with it.
    pub(crate) fn blob(&self) -> Option<Arc<NewBlob>> {
        match self {
            Self::Present(_) => None,
            Self::New(ready) => ready.blob(),
        }
    }

    pub(crate) fn source(&self) -> LayerSource {
        match self {
            Self::Present(layer) => LayerSource::Present(layer.clone()),
            Self::New(ready) => LayerSource::New { layer: ready.layer(), diff_id: ready.diff_id.clone() },
        }
    }
}
