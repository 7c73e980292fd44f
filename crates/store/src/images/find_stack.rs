//! The layers of an image or a single layer, leased for a view.

use oci::{Digest, Document, ReferenceOrId};

use crate::disk::layer::LayerId;
use crate::error::{ResolveError, StoreError};
use crate::maintenance::Lease;
use crate::records::entries::{ImageRecord, Layer};
use crate::records::tables::Records;
use crate::store::Store;
use crate::view::Stack;
use crate::view::stack::{StackLayer, stack};

impl Store {
    /// Returns the layers of an image, by reference or ID, or one layer, by its diff ID or by the digest under which a manifest
    /// names it. They are leased, so that they stay until `lease` is dropped. `None` if the object is absent or not whole.
    ///
    /// # Errors
    /// As for [`Store::resolve`].
    pub fn stack(&self, lease: &Lease, named: &ReferenceOrId) -> Result<Option<Stack>, ResolveError> {
        let mut leases = self.maintenance.lease_table();
        let found = match self.resolve(named)? {
            Some(image) => Some((Some(image.id.clone()), self.layers.image_layers(&image)?)),
            None => self.one_layer(named)?.map(|layer| (None, vec![layer])),
        };
        let Some((image, layers)) = found else { return Ok(None) };
        let shown = stack(&layers);
        if !shown.iter().all(|id| self.layers.has_layer(*id)) {
            return Ok(None);
        }
        for id in &shown {
            lease.hold(&mut leases, *id);
        }
        let of = |id: &LayerId| layers.iter().find(|layer| layer.id == *id);
        let layers = shown.iter().rev().filter_map(of).map(StackLayer::of).collect();
        Ok(Some(Stack { image, layers, owners_on_disk: self.layers.privileged }))
    }

    fn one_layer(&self, named: &ReferenceOrId) -> Result<Option<Layer>, StoreError> {
        // Unlike an image ID, the digest of a layer is given with its algorithm.
        let Some(digest) = named.id().filter(|_| named.as_str().contains(':')) else { return Ok(None) };
        let layers = self.catalog.db.read(|records| records.layers())?;
        if let Some((id, entry)) = layers.iter().find(|(_, entry)| entry.diff_id == *digest && !entry.damaged) {
            return Ok(Some(entry.layer(*id)));
        }
        let id = self.images()?.iter().find_map(|image| named_in(image, digest));
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
