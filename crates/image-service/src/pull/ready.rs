//! [`ReadyLayer`]: a layer that a job made and no commit has taken yet; and [`ReadyLayers`], the index of those that some pull still has.
//! Made by [`super::layer`], taken by assemblies, which hand the [`Part`]s of an image to its commit.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use oci::Digest;
use store::{Layer, LayerSource, NewBlob, UnpackedLayer};

use super::key::LayerKey;
use crate::background::BlockingDrop;

/// A layer that a job made, and its blob, to be dropped where that may block.
pub(crate) struct Made {
    /// There until the end.
    layer: Option<Arc<UnpackedLayer>>,
    /// The blob that it was unpacked from, where blobs are kept.
    pub(super) blob: Option<Arc<NewBlob>>,
    /// True if the layer is left for a later pull when its last user drops it.
    stays: AtomicBool,
}

/// A layer that is unpacked and whose blob is verified.
#[derive(Clone)]
pub(crate) struct ReadyLayer {
    pub(super) kept: Arc<BlockingDrop<Made>>,
    /// Digest of the blob that went in.
    pub(crate) blob_digest: Digest,
    /// Digest of the tar stream that came out.
    pub(crate) diff_id: Digest,
}

impl ReadyLayer {
    pub(crate) fn layer(&self) -> Arc<UnpackedLayer> {
        Arc::clone(self.kept.layer())
    }

    /// The blob that is to be kept.
    pub(crate) fn blob(&self) -> Option<Arc<NewBlob>> {
        self.kept.blob.clone()
    }

    /// Leaves the layer for a later pull when its last user drops it.
    pub(crate) fn stay(&self) {
        self.kept.stays.store(true, Ordering::Relaxed);
    }

    /// Returns the layer if this is its last user, to be dropped where that may block.
    pub(crate) fn into_last(self) -> Option<Made> {
        Arc::into_inner(self.kept).map(BlockingDrop::into_inner)
    }
}

impl Made {
    pub(super) fn new(layer: UnpackedLayer) -> Self {
        Self { layer: Some(Arc::new(layer)), blob: None, stays: AtomicBool::new(false) }
    }

    pub(super) fn layer(&self) -> &Arc<UnpackedLayer> {
        self.layer.as_ref().expect("taken only at the end")
    }
}

/// Leaves the layer for a later pull, where that is wanted and can be, or the blob where that is kept. May block.
impl Drop for Made {
    fn drop(&mut self) {
        if !*self.stays.get_mut() {
            return;
        }
        if let Some(layer) = self.layer.take().and_then(Arc::into_inner) {
            layer.leave();
        }
        if let Some(blob) = self.blob.take().and_then(Arc::into_inner) {
            blob.leave();
        }
    }
}

/// Layers that are unpacked and not yet committed: a pull that starts between the end of a job and the commit of the
/// pull that wanted it takes the layer from this table instead of fetching it again.
#[derive(Default)]
pub(crate) struct ReadyLayers(Mutex<HashMap<LayerKey, WaitingLayer>>);

/// A layer as long as some pull has it, and its diff id.
type WaitingLayer = (Weak<BlockingDrop<Made>>, Digest);

impl ReadyLayers {
    /// Returns the layer that this job made, if a pull still holds it.
    pub(crate) fn find(&self, key: &LayerKey) -> Option<ReadyLayer> {
        let layers = self.0.lock();
        let (kept, diff_id) = layers.get(key)?;
        Some(ReadyLayer { kept: kept.upgrade()?, blob_digest: key.blob.clone(), diff_id: diff_id.clone() })
    }

    /// Returns the keys of those `wanted` jobs whose layers a pull still holds.
    pub(crate) fn keys(&self, wanted: impl Fn(&LayerKey) -> bool) -> Vec<LayerKey> {
        let layers = self.0.lock();
        let there = layers.iter().filter(|(key, (kept, _))| kept.strong_count() > 0 && wanted(key));
        there.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn keep(&self, key: LayerKey, layer: &ReadyLayer) {
        let mut layers = self.0.lock();
        layers.retain(|_, (kept, _)| kept.strong_count() > 0);
        layers.insert(key, (Arc::downgrade(&layer.kept), layer.diff_id.clone()));
    }
}

/// A whole image that is not yet visible.
pub(crate) struct Assembled {
    pub(crate) config: Bytes,
    /// Lowest first.
    pub(crate) layers: Vec<Part>,
}

/// A layer of an image, present or new.
#[derive(Clone)]
pub(crate) enum Part {
    Present(PresentLayer),
    New(ReadyLayer),
}

/// A layer that is here.
#[derive(Clone)]
pub(crate) enum PresentLayer {
    /// In the engine's own store.
    Own(Layer),
    /// In the runtime's store, on the chain of the image.
    Runtime { diff_id: Digest },
    /// In the runtime's store on another chain, with this chain id: its files need only be linked.
    Elsewhere { diff_id: Digest, chain_id: Digest },
}

impl PresentLayer {
    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Own(layer) => &layer.diff_id,
            Self::Runtime { diff_id } | Self::Elsewhere { diff_id, .. } => diff_id,
        }
    }

    /// Bytes of its files; none where only the runtime knows.
    pub(crate) fn content_bytes(&self) -> u64 {
        match self {
            Self::Own(layer) => layer.stats.content_bytes,
            Self::Runtime { .. } | Self::Elsewhere { .. } => 0,
        }
    }
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
            Self::Present(layer) => layer.diff_id(),
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

    /// The layer as the engine's own store takes it; `None`: it is the runtime's.
    pub(crate) fn source(&self) -> Option<LayerSource> {
        match self {
            Self::Present(PresentLayer::Own(layer)) => Some(LayerSource::Present(layer.clone())),
            Self::Present(_) => None,
            Self::New(ready) => Some(LayerSource::New { layer: ready.layer(), diff_id: ready.diff_id.clone() }),
        }
    }
}
