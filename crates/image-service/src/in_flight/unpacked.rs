//! [`ReadyLayer`]: a layer that a job has unpacked and no commit has taken yet; [`ReadyLayers`]: the table of those that a pull
//! still holds. Layer jobs make them; pulls hand them to the commit of their image.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use oci::Digest;
use store::{NewBlob, UnpackedLayer};

use super::LayerKey;
use crate::background::BlockingDrop;

/// An unpacked layer and its blob. Dropping it deletes them, or leaves them for a later pull, and blocks.
pub(crate) struct UnpackedLayerGuard {
    /// `None` only while the guard is dropped.
    layer: Option<Arc<UnpackedLayer>>,
    /// The blob of the layer, if blobs are kept.
    blob: Option<Arc<NewBlob>>,
    /// True if the layer is left for a later pull instead of being deleted.
    is_left: AtomicBool,
}

/// A layer that is unpacked and whose blob is verified.
#[derive(Clone)]
pub(crate) struct ReadyLayer {
    guard: Arc<BlockingDrop<UnpackedLayerGuard>>,
    /// Digest of the compressed blob.
    pub(crate) blob_digest: Digest,
    /// Digest of the tar stream.
    pub(crate) diff_id: Digest,
}

impl ReadyLayer {
    /// Wraps an unpacked layer with its verified digests.
    pub(crate) fn new(guard: BlockingDrop<UnpackedLayerGuard>, blob_digest: Digest, diff_id: Digest) -> Self {
        Self { guard: Arc::new(guard), blob_digest, diff_id }
    }

    pub(crate) fn layer(&self) -> Arc<UnpackedLayer> {
        Arc::clone(self.guard.layer())
    }

    /// Returns the blob, if blobs are kept.
    pub(crate) fn blob(&self) -> Option<Arc<NewBlob>> {
        self.guard.blob.clone()
    }

    /// Has the layer left for a later pull when its last user drops it.
    pub(crate) fn keep_for_later(&self) {
        self.guard.is_left.store(true, Ordering::Relaxed);
    }

    /// Returns the guard if this is the last user of the layer, so that the caller drops it on a thread that may block.
    pub(crate) fn into_last(self) -> Option<UnpackedLayerGuard> {
        Arc::into_inner(self.guard).map(BlockingDrop::into_inner)
    }
}

impl UnpackedLayerGuard {
    pub(crate) fn new(layer: UnpackedLayer) -> Self {
        Self { layer: Some(Arc::new(layer)), blob: None, is_left: AtomicBool::new(false) }
    }

    pub(crate) fn layer(&self) -> &Arc<UnpackedLayer> {
        self.layer.as_ref().expect("taken only by drop")
    }

    /// Adds the blob that the layer was unpacked from.
    pub(crate) fn set_blob(&mut self, blob: Option<Arc<NewBlob>>) {
        self.blob = blob;
    }

    /// Returns true if the guard has the blob.
    pub(crate) fn has_blob(&self) -> bool {
        self.blob.is_some()
    }
}

/// Leaves the layer, or its kept blob, for a later pull if that was asked for. May block.
impl Drop for UnpackedLayerGuard {
    fn drop(&mut self) {
        if !*self.is_left.get_mut() {
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

/// A layer, as long as a pull holds it, and its diff ID.
type WaitingLayer = (Weak<BlockingDrop<UnpackedLayerGuard>>, Digest);

impl ReadyLayers {
    /// Returns the layer of this job, if a pull still holds it.
    pub(crate) fn find(&self, key: &LayerKey) -> Option<ReadyLayer> {
        let layers = self.0.lock();
        let (guard, diff_id) = layers.get(key)?;
        Some(ReadyLayer { guard: guard.upgrade()?, blob_digest: key.blob.clone(), diff_id: diff_id.clone() })
    }

    /// Returns the keys of the `wanted` jobs whose layers a pull still holds.
    pub(crate) fn keys(&self, wanted: impl Fn(&LayerKey) -> bool) -> Vec<LayerKey> {
        let layers = self.0.lock();
        let held = layers.iter().filter(|(key, (guard, _))| guard.strong_count() > 0 && wanted(key));
        held.map(|(key, _)| key.clone()).collect()
    }

    /// Adds the layer of a job.
    pub(crate) fn add(&self, key: LayerKey, layer: &ReadyLayer) {
        let mut layers = self.0.lock();
        layers.retain(|_, (guard, _)| guard.strong_count() > 0);
        layers.insert(key, (Arc::downgrade(&layer.guard), layer.diff_id.clone()));
    }
}
