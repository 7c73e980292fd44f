//! Operations on kept blobs.

use std::fs::File;

use oci::Digest;

use crate::content::blobs::BlobIngest;
use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// Returns a private file for a blob that is being fetched, or `None` if the store has that blob. The file is deleted
    /// with the value, unless a commit took it.
    ///
    /// # Errors
    /// The file could not be created, or the database could not be read.
    pub fn new_blob(&self, digest: &Digest, size: u64) -> Result<Option<BlobIngest>, StoreError> {
        self.content.new_blob(digest, size)
    }

    /// Opens a kept blob for reading, and returns its size. The reader must verify the content: files get damaged.
    ///
    /// # Errors
    /// The database could not be read, or the file could not be opened. A missing file is no error.
    pub fn open_blob(&self, digest: &Digest) -> Result<Option<(File, u64)>, StoreError> {
        self.content.open_recorded_blob(digest)
    }

    /// Drops a kept blob that was found damaged. The images that have it keep everything else.
    ///
    /// # Errors
    /// The database could not be written, or the file could not be deleted.
    pub fn drop_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        self.content.drop_blob(digest)
    }
}
