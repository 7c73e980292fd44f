//! [`Plan`]: the layers of an image by its config, and those that are present. A plain value.

use bytes::Bytes;

use crate::content::CommitMark;
use crate::destination::image::{ChainLink, PresentLayer};

/// The layers of an image by its config.
pub(super) struct Plan {
    pub(super) config: Bytes,
    /// The links of all layers, lowest first.
    pub(super) chain: Vec<ChainLink>,
    pub(super) present: Vec<Option<PresentLayer>>,
    /// The mark of commits from before the lookup of `present`.
    pub(super) commits: CommitMark,
}

impl Plan {
    /// Returns the links of these places.
    pub(super) fn links(&self, places: &[usize]) -> Vec<ChainLink> {
        places.iter().map(|&place| self.chain[place].clone()).collect()
    }
}
