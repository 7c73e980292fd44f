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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::image::{PresentLayer, chain};

    fn descriptor(name: &str, size: u64) -> Descriptor {
        Descriptor::new("", Digest::sha256(name.as_bytes()), size)
    }

    fn digests(blobs: &[LayerBlob]) -> Vec<(Digest, Vec<usize>)> {
        blobs.iter().map(|blob| (blob.descriptor.digest.clone(), blob.places.clone())).collect()
    }

    #[test]
    fn each_missing_blob_is_listed_once_with_its_places() {
        let layers = [descriptor("a", 1), descriptor("b", 2), descriptor("a", 1)];
        let (a, b) = (layers[0].digest.clone(), layers[1].digest.clone());
        let none = |_: &Digest| false;
        let all = blobs_of(&layers, &Origin::Archive, None, none);
        assert_eq!(digests(&all), [(a.clone(), vec![0, 2]), (b.clone(), vec![1])]);

        let diff_ids = ["da", "db", "da"].map(|text| Digest::sha256(text.as_bytes()));
        let chain = chain(&diff_ids);
        let present = vec![None, Some(PresentLayer::Runtime { diff_id: diff_ids[1].clone() }), None];
        let plan = Plan { config: bytes::Bytes::new(), chain, present, commits: crate::content::CommitMark::default() };
        let missing = blobs_of(&layers, &Origin::Archive, Some(&plan), none);
        assert_eq!(digests(&missing), [(a.clone(), vec![0, 2])]);
        assert_eq!(missing[0].diff_id.as_ref(), Some(&diff_ids[0]));
        // A chain that needs the layer alone does not share the blob's other places.
        let top = plan.chain[2].chain_id.clone();
        let exclusive = blobs_of(&layers, &Origin::Archive, Some(&plan), |id| *id == top);
        assert_eq!(digests(&exclusive), [(a.clone(), vec![0]), (a, vec![2])]);
    }

    #[test]
    fn big_blobs_are_first_and_small_ones_from_the_lowest_up() {
        let layers =
            [descriptor("s1", 10), descriptor("big", SMALL + 1), descriptor("s2", 20), descriptor("huge", SMALL * 2)];
        let blobs = blobs_of(&layers, &Origin::Archive, None, |_| false);
        let mut queue: VecDeque<usize> = (0..blobs.len()).collect();
        sort(&blobs, &mut queue);
        assert_eq!(queue, [3, 1, 0, 2]);
        assert_eq!([blobs[0].weight(), blobs[1].weight()], [1, WEIGHT]);
    }

    #[test]
    fn results_of_superseded_attempts_are_recognised() {
        let mut blob = blobs_of(&[descriptor("a", 1)], &Origin::Archive, None, |_| false).remove(0);
        let first = blob.begin();
        let stop = blob.stop.clone();
        assert!(blob.is_current(first));
        blob.supersede();
        assert!(stop.is_cancelled() && !blob.stop.is_cancelled(), "only the first attempt is stopped");
        assert!(!blob.is_current(first), "queued");
        let second = blob.begin();
        assert!(blob.is_current(second) && !blob.is_current(first));
        blob.state = BlobState::Unneeded;
        assert!(!blob.is_current(second));
    }
}
