//! What images take on the disk. Nothing is measured here: the numbers were written down when layers were committed.

use oci::Digest;

use crate::commit::RECORDS_ROOM;
use crate::db::Records;
use crate::error::StoreError;
use crate::open::Store;
use crate::records::Totals;

impl Store {
    /// Bytes that only this image has, and bytes that it shares with other images. Their sum is the image's size.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn usage(&self, id: &Digest) -> Result<Option<(u64, u64)>, StoreError> {
        self.inner.db.read(|records| {
            let Some(entry) = records.image(id)? else { return Ok(None) };
            let (mut unique, mut shared) = (entry.document_bytes, 0);
            for layer in entry.distinct_layers() {
                let layer = records.layer_of_image(layer)?;
                *(if layer.references > 1 { &mut shared } else { &mut unique }) += layer.stats.disk_bytes;
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
        let room = self.inner.db.reserve().room();
        let room =
            room.map_err(|source| StoreError::io("ask for the free space of", &self.inner.layout.path, source))?;
        Ok(room.map(|bytes| bytes.saturating_sub(RECORDS_ROOM)))
    }

    /// What all images take together. One record is read, however many images there are.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn totals(&self) -> Result<Totals, StoreError> {
        self.inner.db.read(|records| Ok(records.totals()?))
    }
}
