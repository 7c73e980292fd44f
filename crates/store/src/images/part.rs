//! [`Images`]: commits, conversions and removals of whole images. No state of its own: the locks are those of the parts below.

use std::sync::Arc;

use crate::content::part::Content;
use crate::ingest::part::Ingests;
use crate::layers::part::Layers;
use crate::maintenance::part::Maintenance;
use crate::mount::mounts::Mounts;
use crate::records::catalog::Catalog;

/// Commits, conversions and removals.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) ingests: Arc<Ingests>,
}

impl Images {
    pub(crate) fn new(maintenance: &Arc<Maintenance>, ingests: &Arc<Ingests>) -> Self {
        Self {
            catalog: Arc::clone(&maintenance.catalog),
            content: Arc::clone(&maintenance.content),
            layers: Arc::clone(&maintenance.layers),
            mounts: Arc::clone(&maintenance.mounts),
            maintenance: Arc::clone(maintenance),
            ingests: Arc::clone(ingests),
        }
    }
}
