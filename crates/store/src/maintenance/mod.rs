//! The order between disk and records: leases, the removal of unreferenced layers, and the sweep.
//!
//! Leases: what a pull relies on stays, even when an image that has it is removed meanwhile. They live in memory, since
//! one process has the store; a layer that only a lease kept is swept when the lease ends, or at the next open.

pub(crate) mod shared_files;
pub(crate) mod strays;
pub(crate) mod sweep;
pub(crate) mod sweep_at_open;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base::lock::{Mutex, MutexGuard};

use crate::content::Content;
use crate::disk::layer::LayerId;
use crate::layers::Layers;
use crate::mount::mounts::Mounts;
use crate::records::catalog::Catalog;

/// Leases and the order of changes.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) mounts: Arc<Mounts>,
    /// Guards the leases of layers, and with them the decision that a layer may be removed.
    leases: Mutex<LeaseTable>,
    /// Guards the way from private directories to committed layers: one image at a time. The value is the number of the
    /// next layer's directory.
    pub(crate) commit: Mutex<u64>,
}

impl Maintenance {
    pub(crate) fn new(content: &Arc<Content>, layers: &Arc<Layers>, mounts: &Arc<Mounts>) -> Self {
        Self {
            catalog: Arc::clone(&content.catalog),
            content: Arc::clone(content),
            layers: Arc::clone(layers),
            mounts: Arc::clone(mounts),
            leases: Mutex::default(),
            commit: Mutex::new(1),
        }
    }

    /// Locks the table. Held while a layer is looked up and leased, and while a removal decides and commits, so that these cannot
    /// interleave.
    pub(crate) fn lease_table(&self) -> MutexGuard<'_, LeaseTable> {
        self.leases.lock()
    }
}

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

    fn add(&mut self, id: LayerId) {
        *self.held.entry(id).or_default() += 1;
    }

    /// Releases one lease of the layer. Returns true if it was the last.
    fn release(&mut self, id: LayerId) -> bool {
        if let Some(count) = self.held.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&id);
            }
        }
        !self.holds(id) && self.orphans.contains(&id)
    }
}

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

    /// Adds a layer. The caller holds the lease table, and has looked up the layer since it locked the table, so that the layer
    /// cannot have been removed in between.
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
            tracing::warn!(%error, "unreferenced layers could not be removed; the next start tries again");
        }
    }
}
