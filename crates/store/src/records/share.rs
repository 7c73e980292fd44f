//! A set of layers that have files in common, and what these take. Plain values; [`crate::records::shares`] has the rules.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::disk::layer::LayerId;
use crate::records::entries::LayerStats;

/// Bytes and inodes that a set of layers has in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Layers that share something.
pub(crate) type LayerSet = BTreeSet<LayerId>;

impl Share {
    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), inodes: self.inodes.saturating_sub(other.inodes) }
    }
}

impl LayerStats {
    pub(crate) fn give(&mut self, share: Share) {
        self.disk_bytes += share.bytes;
        self.inodes += share.inodes;
    }

    pub(crate) fn take(&mut self, share: Share) {
        self.disk_bytes = self.disk_bytes.saturating_sub(share.bytes);
        self.inodes = self.inodes.saturating_sub(share.inodes);
    }
}

/// The key of a set's row.
pub(crate) fn key_of(set: &LayerSet) -> String {
    set.iter().map(LayerId::to_string).collect::<Vec<_>>().join(",")
}

/// The set of a row, if its key is one.
pub(crate) fn set_of(key: &str) -> Option<LayerSet> {
    key.split(',').map(|number| number.parse().ok().map(LayerId)).collect()
}
