//! Which layers a view shows: found in the database once, plain data from then on. A process that does not have the store can
//! open the layers by it, as long as the process that has the store holds them.

use std::path::{Path, PathBuf};

use oci::Digest;
use serde::{Deserialize, Serialize};

use crate::disk::layer::{LayerId, Shape};
use crate::disk::layout::EROFS_FILE;
use crate::records::entries::Layer;

/// The layers of one image in the order in which they hide each other, or a single layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stack {
    /// The image; `None` for a layer by itself.
    pub image: Option<Digest>,
    /// The topmost first.
    pub(crate) layers: Vec<StackLayer>,
    /// Owners, modes and devices of directory trees are those of their files. An ordinary user cannot give them.
    pub(crate) owners_on_disk: bool,
}

/// A layer of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StackLayer {
    pub(crate) number: LayerId,
    pub(crate) diff_id: Digest,
    #[serde(default)]
    pub(crate) shape: Shape,
}

impl Stack {
    /// Returns the path of a layer's EROFS file; `layers` is the store's directory of layers.
    pub(crate) fn erofs_path(&self, layers: &Path, at: usize) -> PathBuf {
        layers.join(self.layers[at].number.to_string()).join(EROFS_FILE)
    }

    /// Layers that no store knows, the topmost first.
    #[cfg(test)]
    pub(crate) fn from_parts(image: Digest, layers: Vec<(LayerId, Digest, Shape)>) -> Self {
        let of = |(number, diff_id, shape)| StackLayer { number, diff_id, shape };
        Self { image: Some(image), layers: layers.into_iter().map(of).collect(), owners_on_disk: true }
    }

    /// The visible stack of an image's layers, given lowest first.
    pub(crate) fn of(image: Digest, layers: &[Layer], owners_on_disk: bool) -> Self {
        let of = |id: &LayerId| layers.iter().find(|layer| layer.id == *id);
        let layers = stack(layers).iter().rev().filter_map(of).map(StackLayer::of).collect();
        Self { image: Some(image), layers, owners_on_disk }
    }
}

/// Returns the visible layers of a stack, lowest first.
pub(crate) fn stack(layers: &[Layer]) -> Vec<LayerId> {
    let mut seen = Vec::new();
    for layer in layers.iter().rev() {
        if !seen.contains(&layer.id) {
            seen.push(layer.id);
        }
        if layer.stats.root_opaque {
            break;
        }
    }
    seen.reverse();
    seen
}

impl StackLayer {
    pub(crate) fn of(layer: &Layer) -> Self {
        Self { number: layer.id, diff_id: layer.diff_id.clone(), shape: layer.shape }
    }
}
