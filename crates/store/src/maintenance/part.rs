//! [`Maintenance`]: who may change what lies under `layers/`, and when: leases, and the one way from private directories to layers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::content::part::Content;
use crate::layers::part::Layers;
use crate::maintenance::lease_table::LeaseTable;
use crate::mount::mounts::Mounts;
use crate::records::catalog::Catalog;

/// Leases and the order of changes.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) mounts: Arc<Mounts>,
    /// Guards who holds which layer, and with it the decision that a layer may go.
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

    /// The table. Held while a layer is looked up and leased, and while a removal decides and commits: in between,
    /// nobody else can do either.
    pub(crate) fn lease_table(&self) -> MutexGuard<'_, LeaseTable> {
        self.leases.lock()
    }
}
