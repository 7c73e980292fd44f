//! [`Assembly`]: the work of assembling all layers of one manifest, as a value, with the plan that its config gives and
//! the results of waiting for layers. Its steps: [`super::assemble`] drives, [`super::wanted`] lists the blobs,
//! [`super::join`] joins the jobs of other pulls.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use cri_api::Result;
use oci::Digest;
use tokio_util::sync::CancellationToken;

use super::choose::Chosen;
use super::holding::Holding;
use super::image::PresentLayer;
use super::stack::Stacking;
use crate::budgets::PullAccount;
use crate::content::CommitMark;
use crate::in_flight::ReadyLayer;
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::source::Source;

/// A manifest whose layers are being assembled, and the parts of the engine that do it.
pub(crate) struct Assembly<'a> {
    pub(crate) parts: &'a Arc<EngineParts>,
    pub(crate) source: &'a Arc<dyn Source>,
    pub(crate) holding: &'a Holding,
    pub(crate) chosen: &'a Chosen,
    pub(crate) name: &'a str,
    pub(crate) hub: &'a Hub,
    pub(crate) token: &'a CancellationToken,
    /// Stacks for which the layer must be unpacked for itself.
    pub(crate) alone: &'a BTreeSet<Digest>,
    /// The pull charged for its jobs' memory.
    pub(crate) pull: PullAccount,
    /// Reports layers as they become ready, to be put into the runtime's store.
    pub(crate) stacking: Option<Stacking>,
}

/// The config, and its statements about the layers.
pub(super) struct Plan {
    pub(super) bytes: Bytes,
    pub(super) diff_ids: Vec<Digest>,
    pub(super) chain_ids: Vec<Digest>,
    pub(super) present: Vec<Option<PresentLayer>>,
    /// The mark of commits from before the lookup of `present`.
    pub(super) commits: CommitMark,
}

impl Plan {
    /// Diff id and chain id of each of these places.
    pub(super) fn ids_of(&self, places: &[usize]) -> Vec<(Digest, Digest)> {
        places.iter().map(|&place| (self.diff_ids[place].clone(), self.chain_ids[place].clone())).collect()
    }
}

/// The result of waiting for a layer: the index of its blob, whether this pull led the job, and the outcome.
pub(super) type Waited = (usize, bool, LayerOutcome);

pub(super) enum LayerOutcome {
    Answer(Result<ReadyLayer>),
    /// The job had nothing to fetch: another pull has committed the layer.
    Committed,
    /// Stopped; perhaps when the layer was whole.
    Stopped(Option<ReadyLayer>),
    /// The registry does not confirm that it has the blob of another repository's job.
    Refused,
    /// That job has ended meanwhile.
    Gone,
}
