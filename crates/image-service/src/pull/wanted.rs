//! The blobs that an assembly has to fetch, each once, and in which order. Starts nothing; [`Assembly`] does.

use std::collections::{HashMap, VecDeque};

use oci::{Algorithm, Descriptor, Digest};
use tokio_util::sync::CancellationToken;

use super::assembly::{Assembly, Plan};
use super::layer::SMALL;
use crate::in_flight::LayerKey;
use crate::in_flight::ReadyLayer;

/// How much a layer counts that is not small.
pub(super) const WEIGHT: usize = 4;

/// A blob to fetch, for one or more places of the stack.
pub(super) struct Blob {
    pub(super) descriptor: Descriptor,
    pub(super) key: LayerKey,
    pub(super) places: Vec<usize>,
    pub(super) stop: CancellationToken,
    /// As the config says it, once that is known.
    pub(super) diff_id: Option<Digest>,
    /// The blob's job, or one that provides the same layer, is waited for.
    pub(super) running: bool,
    /// Set when nothing is joined any more: another blob that was said to be the same was not, or the registry does not say
    /// that it has this one.
    pub(super) own_only: bool,
    pub(super) ready: Option<ReadyLayer>,
}

impl Assembly<'_> {
    /// The blobs to fetch: without a plan those of the manifest, each once.
    pub(super) fn blobs(&self, plan: Option<&Plan>) -> Vec<Blob> {
        let mut blobs: Vec<Blob> = Vec::new();
        let mut seen: HashMap<LayerKey, usize> = HashMap::new();
        for (place, descriptor) in self.chosen.manifest.layers.iter().enumerate() {
            if plan.is_some_and(|p| p.present[place].is_some()) {
                continue;
            }
            let key = LayerKey {
                blob: descriptor.digest.clone(),
                algorithm: plan.map_or(Algorithm::Sha256, |p| p.diff_ids[place].algorithm()),
                only_for: plan.and_then(|p| self.alone.get(&p.chain_ids[place])).cloned(),
                origin: self.source.origin().clone(),
            };
            match seen.get(&key) {
                Some(&n) => blobs[n].places.push(place),
                None => {
                    seen.insert(key.clone(), blobs.len());
                    let descriptor = descriptor.clone();
                    let stop = CancellationToken::new();
                    let diff_id = plan.map(|p| p.diff_ids[place].clone());
                    let places = vec![place];
                    blobs.push(Blob {
                        descriptor,
                        key,
                        places,
                        stop,
                        diff_id,
                        running: false,
                        own_only: false,
                        ready: None,
                    });
                }
            }
        }
        blobs
    }
}

/// How much a job of this blob counts: a small one waits for the registry most of the time.
pub(super) fn weight(blob: &Blob) -> usize {
    if blob.descriptor.size <= SMALL { 1 } else { WEIGHT }
}

/// The order in which blobs are fetched: the biggest first, and those where only the number matters from the lowest up, so that a
/// runtime's store can take them while others come.
pub(super) fn in_order(blobs: &[Blob]) -> VecDeque<usize> {
    let mut order: VecDeque<usize> = (0..blobs.len()).collect();
    sort(blobs, &mut order);
    order
}

/// Puts blobs in that order.
pub(super) fn sort(blobs: &[Blob], order: &mut VecDeque<usize>) {
    let rank = |&n: &usize| {
        let size = blobs[n].descriptor.size;
        (std::cmp::Reverse(if size <= SMALL { 0 } else { size }), blobs[n].places.first().copied())
    };
    order.make_contiguous().sort_by_key(rank);
}
