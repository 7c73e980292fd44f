//! Finds committed layers: by diff ID and chain ID for a pull, and all layers of an image.

use oci::Digest;

use crate::Lower;
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::layers::Layers;
use crate::records::entries::{ImageRecord, Layer, LayerEntry};
use crate::records::tables::Records;
use crate::view::stack::stack;

impl Layers {
    /// The layers of an image, lowest first, as often as the image has them.
    pub(crate) fn image_layers(&self, image: &ImageRecord) -> Result<Vec<Layer>, StoreError> {
        self.catalog.db.read(|records| {
            let entry = records.image(&image.id)?.ok_or_else(|| StoreError::NotFound(image.id.clone()))?;
            entry.layers.iter().map(|id| Ok(records.layer_of_image(*id)?.layer(*id))).collect()
        })
    }

    /// The same of these layers, lowest first, as the mounter takes it.
    pub(crate) fn lower_layers(&self, layers: &[Layer]) -> Vec<Lower> {
        let lower = |layer: &Layer| layer.shape.lower(&self.catalog.disk.layout.layer_path(layer.id));
        stack(layers).into_iter().filter_map(|id| layers.iter().find(|layer| layer.id == id)).map(lower).collect()
    }

    /// Returns the record for a layer in a stack, also if the layer is missing or damaged.
    fn recorded_layer(
        records: &impl Records,
        diff_id: &Digest,
        chain_id: &Digest,
    ) -> Result<Option<(LayerId, LayerEntry)>, StoreError> {
        // The layer that was made for this very stack is preferred.
        for id in [records.layer_by_chain_id(chain_id)?, records.layer_by_diff_id(diff_id)?].into_iter().flatten() {
            let entry = records.layer(id)?.ok_or_else(|| StoreError::Corrupt(format!("layer {id} has no record")))?;
            if entry.diff_id == *diff_id {
                return Ok(Some((id, entry)));
            }
        }
        Ok(None)
    }

    /// Returns the same, if its directory exists.
    pub(crate) fn usable_layer(
        &self,
        records: &impl Records,
        diff_id: &Digest,
        chain_id: &Digest,
    ) -> Result<Option<(LayerId, LayerEntry)>, StoreError> {
        let found = Self::recorded_layer(records, diff_id, chain_id)?;
        if let Some((id, _)) = &found
            && !self.has_layer(*id)
        {
            tracing::warn!(layer = %id, %diff_id, "the layer's directory is gone: it has to be fetched again");
            return Ok(None);
        }
        Ok(found)
    }
}
