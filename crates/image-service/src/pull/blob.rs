//! [`LayerBlob`]: a blob that a pull fetches for one or more layers, with its state, and the order in which blobs are fetched.

use std::collections::{HashMap, VecDeque};

use oci::{Algorithm, Descriptor, Digest};
use tokio_util::sync::CancellationToken;

use super::layer_job::SMALL;
use super::plan::Plan;
use crate::in_flight::{LayerKey, ReadyLayer};
use crate::origin::Origin;

/// The weight of the job of a blob that is not small.
pub(super) const WEIGHT: usize = 4;

/// A blob to fetch, for one or more layers of the image.
pub(super) struct LayerBlob {
    pub(super) descriptor: Descriptor,
    pub(super) key: LayerKey,
    /// The places of its layers in the image.
    pub(super) places: Vec<usize>,
    /// The diff ID, once the config is known.
    pub(super) diff_id: Option<Digest>,
    /// True if no other job is joined: another blob with the same diff ID had another layer, or the registry does not confirm the
    /// blob of another repository.
    pub(super) own_only: bool,
    pub(super) state: BlobState,
    /// Number of the last attempt, so that the result of a superseded one is recognised.
    pub(super) attempt: u32,
    /// Stops the last attempt.
    pub(super) stop: CancellationToken,
}

/// The state of a blob.
pub(super) enum BlobState {
    /// Waits for its turn to be fetched.
    Queued,
    /// Waits for a layer job: its own, or another one that provides the same layer.
    Fetching,
    /// The layer is unpacked.
    Ready(ReadyLayer),
    /// The image needs no layer of it: the layers are present, or the config does not list them.
    Unneeded,
}

impl LayerBlob {
    /// Begins an attempt to get the layer, and returns its number.
    pub(super) fn begin(&mut self) -> u32 {
        self.state = BlobState::Fetching;
        self.attempt += 1;
        self.attempt
    }

    /// Stops the last attempt; another one may begin.
    pub(super) fn supersede(&mut self) {
        std::mem::take(&mut self.stop).cancel();
        self.state = BlobState::Queued;
    }

    /// Returns true if this attempt is the last one and still waited for.
    pub(super) fn is_current(&self, attempt: u32) -> bool {
        self.attempt == attempt && matches!(self.state, BlobState::Fetching)
    }

    pub(super) fn ready(&self) -> Option<&ReadyLayer> {
        match &self.state {
            BlobState::Ready(layer) => Some(layer),
            _ => None,
        }
    }

    /// Returns the weight of a job of this blob: a small one spends most of its time waiting for the registry.
    pub(super) fn weight(&self) -> usize {
        if self.descriptor.size <= SMALL { 1 } else { WEIGHT }
    }

    /// Returns true if a layer from another blob is not the one that the config lists.
    pub(super) fn is_other_layer(&self, layer: &ReadyLayer) -> bool {
        self.diff_id.as_ref().is_some_and(|expected| layer.diff_id != *expected)
            && layer.blob_digest != self.descriptor.digest
    }
}

/// Returns the blobs to fetch, each once: those of all layers, or with a plan those of the missing layers. A layer that another
/// image has taken is fetched for its chain alone (`exclusive`).
pub(super) fn blobs_of(
    layers: &[Descriptor],
    origin: &Origin,
    plan: Option<&Plan>,
    is_exclusive: impl Fn(&Digest) -> bool,
) -> Vec<LayerBlob> {
    let mut blobs: Vec<LayerBlob> = Vec::new();
    let mut seen: HashMap<LayerKey, usize> = HashMap::new();
    for (place, descriptor) in layers.iter().enumerate() {
        let link = plan.map(|plan| &plan.chain[place]);
        if plan.is_some_and(|plan| plan.present[place].is_some()) {
            continue;
        }
        let key = LayerKey {
            blob: descriptor.digest.clone(),
            algorithm: link.map_or(Algorithm::Sha256, |link| link.diff_id.algorithm()),
            only_for: link.map(|link| &link.chain_id).filter(|id| is_exclusive(id)).cloned(),
            origin: origin.clone(),
        };
        if let Some(&n) = seen.get(&key) {
            blobs[n].places.push(place);
            continue;
        }
        seen.insert(key.clone(), blobs.len());
        blobs.push(LayerBlob {
            descriptor: descriptor.clone(),
            key,
            places: vec![place],
            diff_id: link.map(|link| link.diff_id.clone()),
            own_only: false,
            state: BlobState::Queued,
            attempt: 0,
            stop: CancellationToken::new(),
        });
    }
    blobs
}

/// Sorts the indexes of blobs by the order of fetching: the biggest first, and the small ones from the lowest layer up, so that a
/// runtime's store can take them while others are being fetched.
pub(super) fn sort(blobs: &[LayerBlob], queue: &mut VecDeque<usize>) {
    let rank = |&n: &usize| {
        let size = blobs[n].descriptor.size;
        (std::cmp::Reverse(if size <= SMALL { 0 } else { size }), blobs[n].places.first().copied())
    };
    queue.make_contiguous().sort_by_key(rank);
}
