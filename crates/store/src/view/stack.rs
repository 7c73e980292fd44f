//! Which layers a view shows: found in the database once, plain data from then on. A process that does not have the store can open
//! the layers by it, as long as somebody who has it holds them.

use std::path::{Path, PathBuf};

use oci::{Digest, Document};
use serde::{Deserialize, Serialize};

use crate::error::{ResolveError, StoreError};
use crate::layers::lookup::stack;
use crate::layers::shape::Shape;
use crate::maintenance::lease::Lease;
use crate::recipe;
use crate::records::db::Records;
use crate::records::entries::{ImageRecord, Layer, LayerId};
use crate::store::open::Store;

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

impl Store {
    /// The layers of what `text` means: an image by name or id, or one layer by its diff id or by the digest under which a
    /// manifest names it. Leased, so that they stay until `lease` goes. `None`: there is no such thing, or not whole.
    ///
    /// # Errors
    /// As for [`Store::resolve`].
    pub fn stack(&self, lease: &Lease, text: &str) -> Result<Option<Stack>, ResolveError> {
        let mut leases = self.inner.lease_table();
        let found = match self.resolve(text)? {
            Some(image) => Some((Some(image.id.clone()), self.image_layers(&image)?)),
            None => self.one_layer(text)?.map(|layer| (None, vec![layer])),
        };
        let Some((image, layers)) = found else { return Ok(None) };
        let shown = stack(&layers);
        if !shown.iter().all(|id| self.inner.has_layer(*id)) {
            return Ok(None);
        }
        for id in &shown {
            lease.hold(&mut leases, *id);
        }
        let of = |id: &LayerId| layers.iter().find(|layer| layer.id == *id);
        let layers = shown.iter().rev().filter_map(of).map(StackLayer::of).collect();
        Ok(Some(Stack { image, layers, owners_on_disk: self.inner.privileged }))
    }

    fn one_layer(&self, text: &str) -> Result<Option<Layer>, StoreError> {
        let Ok(digest) = text.parse::<Digest>() else { return Ok(None) };
        let layers = self.inner.db.read(|records| Ok::<_, StoreError>(records.layers()?))?;
        if let Some((id, entry)) = layers.iter().find(|(_, entry)| entry.diff_id == digest && !entry.damaged) {
            return Ok(Some(entry.layer(*id)));
        }
        let id = self.images()?.iter().find_map(|image| named_in(image, &digest));
        Ok(id.and_then(|id| layers.iter().find(|(known, _)| *known == id)).map(|(id, entry)| entry.layer(*id)))
    }
}

/// The layer that the image's manifest names by this digest.
fn named_in(image: &ImageRecord, digest: &Digest) -> Option<LayerId> {
    let Document::Manifest(manifest) = Document::parse(&image.manifest, Some(&image.manifest_media_type)).ok()? else {
        return None;
    };
    let at = manifest.layers.iter().position(|layer| layer.digest == *digest)?;
    (manifest.layers.len() == image.layers.len()).then(|| image.layers[at])
}

impl Stack {
    /// Where a file of a layer is that is an image, or has blocks of one; `layers` is the store's directory of layers.
    pub(crate) fn device_path(&self, layers: &Path, at: usize, device: u16) -> PathBuf {
        layers.join(self.layers[at].number.to_string()).join(recipe::device_name(device.into()))
    }

    /// Layers that no store knows, the topmost first.
    #[cfg(test)]
    pub(crate) fn from_parts(image: Digest, layers: Vec<(LayerId, Digest, Shape)>) -> Self {
        let of = |(number, diff_id, shape)| StackLayer { number, diff_id, shape };
        Self { image: Some(image), layers: layers.into_iter().map(of).collect(), owners_on_disk: true }
    }

    /// What is put on each other of an image's layers, lowest first.
    pub(crate) fn of(image: Digest, layers: &[Layer], owners_on_disk: bool) -> Self {
        let of = |id: &LayerId| layers.iter().find(|layer| layer.id == *id);
        let layers = stack(layers).iter().rev().filter_map(of).map(StackLayer::of).collect();
        Self { image: Some(image), layers, owners_on_disk }
    }
}

impl StackLayer {
    fn of(layer: &Layer) -> Self {
        Self { number: layer.id, diff_id: layer.diff_id.clone(), shape: layer.shape }
    }
}
