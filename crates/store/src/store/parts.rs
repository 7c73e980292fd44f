//! [`Store`], the public face, and the parts that it is composed of. Each part knows the parts above it in this list, and none below:
//!
//! | part | has | locks, in the order in which they are taken |
//! |---|---|---|
//! | [`Catalog`] and its disk | database, directories, lock file | `deleting` (2), the database's handle (5) |
//! | [`Content`] | private names, kept blobs, left work | `busy` (6), `left` (6) |
//! | [`Layers`] | committed layers, which are damaged | `damaged` (6) |
//! | [`Mounts`] | mounted images | `mounting` (3) |
//! | [`Maintenance`] | leases, the number of the next layer | `commit` (1), `leases` (4) |
//! | [`Ingests`] | how layers are unpacked | none |
//! | [`Images`] | commits, conversions, removals | none |
//!
//! A thread that holds a lock takes only locks with a greater number; those of one number are never held together. What is a value's
//! own (the layers of a lease, the place and the numbers of an unpacked layer) is locked last, with nothing taken below it but
//! locks of number 6.

use std::path::Path;
use std::sync::Arc;

use crate::content::part::Content;
use crate::images::part::Images;
use crate::ingest::part::Ingests;
use crate::layers::part::Layers;
use crate::maintenance::lease::Lease;
use crate::maintenance::part::Maintenance;
use crate::mount::mounts::Mounts;
use crate::records::catalog::Catalog;
use crate::store::choice::NewLayers;

/// A store of images and layers. Clones share it; the last one that goes gives the lock back. Every operation blocks.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) parts: Arc<StoreParts>,
}

/// The parts of a store, shared by all clones.
#[derive(Debug)]
pub(crate) struct StoreParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) ingests: Arc<Ingests>,
    pub(crate) images: Arc<Images>,
    /// The format of new layers, and why.
    pub(crate) new_layers: NewLayers,
}

impl Store {
    /// Where the store is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.parts.catalog.disk.layout.path
    }

    /// Returns true if owners, devices and privileged attributes are set when layers are unpacked.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.parts.layers.privileged
    }

    /// The format of new layers, and why.
    #[must_use]
    pub fn new_layers(&self) -> NewLayers {
        self.parts.new_layers
    }

    /// A new lease. A pull takes one before it looks for layers, and keeps it until its image is committed.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::new(Arc::clone(&self.parts.maintenance))
    }
}
