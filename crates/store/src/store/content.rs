//! The public operations on blobs, and on what interrupted pulls left.

use std::collections::BTreeSet;
use std::fs::File;

use oci::Digest;

use crate::content::blobs::BlobIngest;
use crate::content::spool::Spool;
use crate::content::unfinished::Unfinished;
use crate::error::StoreError;
use crate::ingest::whole::WholeLayer;
use crate::records::entries::Removed;
use crate::store::parts::Store;

impl Store {
    /// A private file for a blob that is on its way, or nothing where the store has that blob. The file vanishes with the
    /// value, unless a commit took it.
    ///
    /// # Errors
    /// The file could not be made, or the database could not be read.
    pub fn new_blob(&self, digest: &Digest, size: u64) -> Result<Option<BlobIngest>, StoreError> {
        self.parts.content.new_blob(digest, size)
    }

    /// A kept blob, for reading, and its size. What is read must be verified: files get damaged.
    ///
    /// # Errors
    /// The database could not be read, or the file could not be opened. A file that is gone is no error.
    pub fn open_blob(&self, digest: &Digest) -> Result<Option<(File, u64)>, StoreError> {
        self.parts.content.open_kept_blob(digest)
    }

    /// Drops a kept blob that was found damaged. The images that have it keep everything else.
    ///
    /// # Errors
    /// The database could not be written, or the file not be deleted.
    pub fn drop_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        self.parts.content.drop_blob(digest)
    }

    /// Begins a spool with byte `begin` of a blob that comes from `origin`.
    ///
    /// # Errors
    /// Its files could not be made.
    pub fn new_spool(&self, blob: &Digest, size: u64, begin: u64, origin: &str) -> Result<Spool, StoreError> {
        self.parts.content.new_spool(blob, size, begin, origin)
    }

    /// The part of this blob that was left, if one was, and `may` says yes to its origin. What can be read back of it is to
    /// be seen.
    ///
    /// # Errors
    /// The files cannot be opened. They are gone then.
    pub fn take_spool(
        &self,
        blob: &Digest,
        size: u64,
        may: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Spool>, StoreError> {
        self.parts.content.take_spool(blob, size, may)
    }

    /// The layer that was made from this blob, if one was left with a diff id of this algorithm, and `may` says yes to
    /// its origin.
    #[must_use]
    pub fn take_left_layer(
        &self,
        blob: &Digest,
        size: u64,
        algorithm: oci::Algorithm,
        may: &dyn Fn(&str) -> bool,
    ) -> Option<WholeLayer> {
        self.parts.ingests.take_left_layer(blob, size, algorithm, may)
    }

    /// Counts what there is. Nothing is measured here.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        self.parts.content.unfinished()
    }

    /// Takes the time, in nanoseconds since 1970, for what was left while the clock showed another one: with what is of the future,
    /// and with what is of a time before any clock was set, it begins to grow old now.
    pub fn note_clock(&self, now: i64) {
        self.parts.content.note_clock(now)
    }

    /// The origins of everything that is left of this blob, as its pulls named them.
    #[must_use]
    pub fn origins_of_unfinished(&self, blob: &Digest) -> BTreeSet<String> {
        self.parts.content.origins_of_unfinished(blob)
    }

    /// Deletes what was left before this time (nanoseconds since 1970), or all of it. What a pull has taken up is not among it.
    /// Needs no free space.
    pub fn drop_unfinished(&self, before: Option<i64>) -> Removed {
        self.parts.content.drop_unfinished(before)
    }

    /// An empty file in the store that has no name: it is gone when it is closed.
    ///
    /// # Errors
    /// The file could not be made.
    pub fn unnamed_file(&self) -> Result<File, StoreError> {
        self.parts.content.unnamed_file()
    }
}
