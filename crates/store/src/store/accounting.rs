//! Operations that report the disk usage of images, from the numbers that were recorded when layers were committed. Nothing is
//! measured.

use std::collections::HashMap;

use oci::Digest;

use crate::disk::layer::LayerId;
use crate::disk::reserve::RECORDS_ROOM;
use crate::error::StoreError;
use crate::records::entries::Totals;
use crate::records::tables::Records;
use crate::store::Store;

/// Result of [`crate::Store::layers_of_images`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayersOfImages {
    /// Bytes on disk of each layer, and after them of each kept blob, which is shared and freed as a layer is.
    pub layers: Vec<u64>,
    /// Of each image: its id, bytes of its documents, and numbers of its layers and blobs, each once. The documents lie in the
    /// database, whose file keeps its size and is used again: their removal gives nothing back to the file system.
    pub images: Vec<(Digest, u64, Vec<u32>)>,
}

impl Store {
    /// Bytes that only this image has, and bytes that it shares with other images. Their sum is the image's size.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn usage(&self, id: &Digest) -> Result<Option<(u64, u64)>, StoreError> {
        self.catalog.db.read(|records| {
            let Some(entry) = records.image(id)? else { return Ok(None) };
            let (mut unique, mut shared) = (entry.document_bytes, 0);
            for layer in entry.distinct_layers() {
                let layer = records.layer_of_image(layer)?;
                *(if layer.references > 1 { &mut shared } else { &mut unique }) += layer.stats.disk_bytes;
            }
            for digest in &entry.blobs {
                let Some(blob) = records.blob(digest)? else { continue };
                *(if blob.references > 1 { &mut shared } else { &mut unique }) += blob.disk_bytes;
            }
            Ok(Some((unique, shared)))
        })
    }

    /// How many bytes of layers can still be written: what the file system has free, less what the store keeps for its
    /// records and for removals. `None`: the file system does not say.
    ///
    /// # Errors
    /// The file system could not be asked.
    pub fn room(&self) -> Result<Option<u64>, StoreError> {
        let room = self.catalog.db.reserve().room();
        let room =
            room.map_err(|source| StoreError::io("ask for the free space of", &self.catalog.disk.layout.path, source))?;
        Ok(room.map(|bytes| bytes.saturating_sub(RECORDS_ROOM)))
    }

    /// Lists the layers of each image by number, and the bytes of each layer on the disk.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn layers_of_images(&self) -> Result<LayersOfImages, StoreError> {
        self.catalog.db.read(|records| {
            let mut found = LayersOfImages::default();
            let mut numbers: HashMap<LayerId, u32> = HashMap::new();
            let next = |known: &Vec<u64>| {
                u32::try_from(known.len()).map_err(|_| StoreError::Corrupt("too many layers".into()))
            };
            for (id, entry) in records.layers()? {
                numbers.insert(id, next(&found.layers)?);
                found.layers.push(entry.stats.disk_bytes);
            }
            let mut blobs: HashMap<Digest, u32> = HashMap::new();
            for (_, row) in records.blob_rows()? {
                let (digest, entry) = row?;
                blobs.insert(digest, next(&found.layers)?);
                found.layers.push(entry.disk_bytes);
            }
            for (id, entry) in records.images()? {
                // A damaged image may name a layer that has no record: that one frees nothing.
                let layers = entry.distinct_layers();
                let layers = layers.iter().filter_map(|layer| numbers.get(layer));
                let parts = layers.chain(entry.blobs.iter().filter_map(|blob| blobs.get(blob)));
                found.images.push((id, entry.document_bytes, parts.copied().collect()));
            }
            Ok(found)
        })
    }

    /// Returns what all images take together. One record is read, however many images there are.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn totals(&self) -> Result<Totals, StoreError> {
        self.catalog.db.read(Records::totals)
    }
}
