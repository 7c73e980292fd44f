//! Leases: what a pull relies on stays, even when an image that has it is removed meanwhile. They live in memory, since
//! one process has the store; a layer that only a lease kept is swept when the lease ends, or at the next open.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::layer::LayerId;
use crate::maintenance::lease_table::LeaseTable;
use crate::maintenance::part::Maintenance;

/// Protects the layers that were found through it, until it is dropped. Dropping it can delete files, when an image was
/// removed meanwhile: let it go on a thread that may block.
#[derive(Debug)]
pub struct Lease {
    maintenance: Arc<Maintenance>,
    /// The layers, each once.
    layers: Mutex<BTreeSet<LayerId>>,
}

impl Lease {
    pub(crate) fn new(maintenance: Arc<Maintenance>) -> Self {
        Self { maintenance, layers: Mutex::new(BTreeSet::new()) }
    }

    /// Adds a layer. The caller holds the lease table, and has looked up the layer since it took it, so that nobody can
    /// have removed the layer in between.
    pub(crate) fn hold(&self, table: &mut LeaseTable, id: LayerId) {
        if self.layers.lock().insert(id) {
            table.add(id);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let layers = std::mem::take(&mut *self.layers.lock());
        if layers.is_empty() {
            return;
        }
        let mut free = Vec::new();
        {
            let mut table = self.maintenance.lease_table();
            for id in layers {
                if table.release(id) {
                    free.push(id);
                }
            }
        }
        if free.is_empty() {
            return;
        }
        if let Err(error) = self.maintenance.sweep_layers(&free) {
            tracing::warn!(%error, "layers that nobody has could not be swept; the next start does it");
        }
    }
}
