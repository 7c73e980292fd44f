//! [`LeaseTable`]: which layers are leased, and how often.

use std::collections::{BTreeSet, HashMap};

use crate::disk::layer::LayerId;

/// The leased layers, and how often each is leased.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    held: HashMap<LayerId, usize>,
    /// Layers that no image has any more and that a lease keeps.
    pub(crate) orphans: BTreeSet<LayerId>,
}

impl LeaseTable {
    pub(crate) fn holds(&self, id: LayerId) -> bool {
        self.held.contains_key(&id)
    }

    pub(super) fn add(&mut self, id: LayerId) {
        *self.held.entry(id).or_default() += 1;
    }

    /// Says whether the layer is now nobody's.
    pub(super) fn release(&mut self, id: LayerId) -> bool {
        if let Some(count) = self.held.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&id);
            }
        }
        !self.holds(id) && self.orphans.contains(&id)
    }
}
