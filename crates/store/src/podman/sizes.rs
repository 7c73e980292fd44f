//! How long the tar streams of layers are, which podman shows as the size of an image: read from the recipe once, and then taken
//! from the view itself.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use oci::Digest;

use super::documents::PodmanLayerRow;
use crate::layers::Layers;
use crate::recipe;
use crate::records::entries::Layer;

/// Lengths of tar streams by their digests.
#[derive(Debug, Default)]
pub(super) struct Sizes(BTreeMap<Digest, u64>);

impl Sizes {
    /// Those of an earlier `layers.json`, if it can be read.
    pub(super) fn of_document(document: &[u8]) -> Self {
        let rows: Vec<PodmanLayerRow> = serde_json::from_slice(document).unwrap_or_default();
        Self(rows.into_iter().map(|row| (row.diff_digest, row.diff_size)).collect())
    }

    /// The size of a layer; of one whose stream cannot be built again, the bytes of its files.
    pub(super) fn of(&mut self, layers: &Layers, layer: &Layer) -> u64 {
        *self.0.entry(layer.diff_id.clone()).or_insert_with(|| {
            let directory = layers.catalog.disk.layout.open_layer(layer.id).ok();
            let stream = directory.and_then(|directory| recipe::examine(directory.as_fd()).ok());
            stream.unwrap_or(layer.stats.content_bytes)
        })
    }
}
