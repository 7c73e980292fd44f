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
    /// The configured format.
    format: LayerFormat,
    /// The view for podman, which reads directories and mounted EROFS files.
    view: Arc<View>,
}

impl Ingests {
    pub(crate) fn new(maintenance: &Maintenance, limits: Limits, shape: Shape, format: LayerFormat) -> Self {
        Self {
            catalog: Arc::clone(&maintenance.catalog),
            content: Arc::clone(&maintenance.content),
            layers: Arc::clone(&maintenance.layers),
            limits,
            shape,
            format,
            view: Arc::clone(&maintenance.mounts.view),
        }
    }

    fn is_for_podman(&self) -> bool {
        self.format == LayerFormat::Auto && self.view.is_on()
    }

    /// Returns true if the trees of EROFS layers are nested: see [`LayerFormat::NestedErofs`].
    pub(crate) fn is_nested(&self) -> bool {
        self.format == LayerFormat::NestedErofs || self.view.mounts_files()
    }

    /// Of layers that are unpacked from now on.
    pub(crate) fn shape(&self) -> Shape {
        match self.is_for_podman() {
            true if self.view.mounts_files() => Shape::Erofs,
            true => Shape::Dir,
            false => self.shape,
        }
    }

    /// The same for people; `chosen` was so when the store was opened.
    pub(crate) fn new_layers(&self, chosen: NewLayers) -> NewLayers {
        match self.is_for_podman() {
            true if self.view.mounts_files() => NewLayers::MOUNTED_FOR_PODMAN,
            true => NewLayers::FOR_PODMAN,
            false => chosen,
        }
    }
}
