//! Layers in progress: unpacked in private, copied and verified. No image has them yet.

pub(crate) mod choice;
pub(crate) mod copy;
mod hand_over;
pub(crate) mod layer;
pub(crate) mod verify;
pub(crate) mod whole;

use std::sync::Arc;

use crate::content::Content;
use crate::disk::layer::Shape;
use crate::ingest::choice::NewLayers;
use crate::layers::Layers;
use crate::maintenance::Maintenance;
use crate::options::LayerFormat;
use crate::podman::view::View;
use crate::records::catalog::Catalog;
use crate::unpack::Limits;

/// The settings and the parts that layers in the making need. Without a lock: each layer is its owner's alone.
#[derive(Debug)]
pub(crate) struct Ingests {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) limits: Limits,
    /// Of layers that are unpacked from now on.
    shape: Shape,
    /// True if the trees of EROFS layers are nested: see [`LayerFormat::NestedErofs`].
    pub(crate) nested: bool,
    /// Set where the shape is not configured: podman reads directories alone.
    view: Option<Arc<View>>,
}

impl Ingests {
    pub(crate) fn new(maintenance: &Maintenance, limits: Limits, shape: Shape, format: LayerFormat) -> Self {
        Self {
            catalog: Arc::clone(&maintenance.catalog),
            content: Arc::clone(&maintenance.content),
            layers: Arc::clone(&maintenance.layers),
            limits,
            shape,
            nested: format == LayerFormat::NestedErofs,
            view: (format == LayerFormat::Auto).then(|| Arc::clone(&maintenance.mounts.view)),
        }
    }

    fn is_for_podman(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_on())
    }

    /// Of layers that are unpacked from now on.
    pub(crate) fn shape(&self) -> Shape {
        if self.is_for_podman() { Shape::Dir } else { self.shape }
    }

    /// The same for people; `chosen` was so when the store was opened.
    pub(crate) fn new_layers(&self, chosen: NewLayers) -> NewLayers {
        if self.is_for_podman() { NewLayers::FOR_PODMAN } else { chosen }
    }
}
