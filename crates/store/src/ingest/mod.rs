//! Layers in the making: unpacked in private, sharing files with others, copied and verified. No image knows them yet.

pub(crate) mod copy;
mod hand_over;
pub(crate) mod layer;
pub(crate) mod share;
pub(crate) mod verify;
pub(crate) mod whole;

use std::sync::Arc;

use crate::content::Content;
use crate::disk::layer::Shape;
use crate::layers::Layers;
use crate::maintenance::Maintenance;
use crate::options::Sharing;
use crate::records::catalog::Catalog;
use crate::unpack::Limits;

/// The settings and the parts that layers in the making need. Without a lock: each layer is its owner's alone.
#[derive(Debug)]
pub(crate) struct Ingests {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) limits: Limits,
    pub(crate) sharing: Sharing,
    /// Of layers that are unpacked from now on.
    pub(crate) shape: Shape,
}

impl Ingests {
    pub(crate) fn new(maintenance: &Maintenance, limits: Limits, sharing: Sharing, shape: Shape) -> Self {
        Self {
            catalog: Arc::clone(&maintenance.catalog),
            content: Arc::clone(&maintenance.content),
            layers: Arc::clone(&maintenance.layers),
            limits,
            sharing,
            shape,
        }
    }
}
