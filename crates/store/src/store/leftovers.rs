//! Operations on the leftovers of interrupted pulls: spools, whole layers, their count and their removal.

use std::collections::BTreeSet;

use oci::Digest;

use crate::content::spool::Spool;
use crate::content::unfinished::Unfinished;
use crate::error::StoreError;
use crate::ingest::whole::WholeLayer;
use crate::records::entries::Removed;
use crate::store::Store;

impl Store {
    /// Begins a spool with byte `begin` of a blob that is fetched from `origin`.
    ///
    /// # Errors
    /// The spool's files could not be created.
    pub fn new_spool(&self, blob: &Digest, size: u64, begin: u64, origin: &str) -> Result<Spool, StoreError> {
        Spool::create(&self.content, blob, size, begin, origin)
    }

    /// Takes the part of this blob that an interrupted pull left, if `may` accepts its origin. Reading it back shows how
    /// much of it is good.
    ///
    /// # Errors
    /// The files cannot be opened. They are deleted then.
    pub fn take_spool(
        &self,
        blob: &Digest,
        size: u64,
        may: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Spool>, StoreError> {
        Spool::take_left(&self.content, blob, size, may)
    }

    /// Takes the layer that was unpacked from this blob and left by an interrupted pull, if it has a diff ID of this
    /// algorithm and `may` accepts its origin.
    #[must_use]
    pub fn take_left_layer(
        &self,
        blob: &Digest,
        size: u64,
        algorithm: oci::Algorithm,
        may: &dyn Fn(&str) -> bool,
    ) -> Option<WholeLayer> {
        WholeLayer::take_left(&self.ingests, blob, size, algorithm, may)
    }

    /// Counts the leftovers from recorded numbers, without measuring the disk.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        self.content.unfinished()
    }

    /// Sets the current time, in nanoseconds since 1970, for leftovers whose recorded time cannot be right: those of the
    /// future, and those of a time before any clock was set. Their age is counted from now on.
    pub fn note_clock(&self, now: i64) {
        self.content.note_clock(now);
    }

    /// Returns the origins of all leftovers of this blob, as the pulls named them.
    #[must_use]
    pub fn origins_of_unfinished(&self, blob: &Digest) -> BTreeSet<String> {
        self.content.origins_of_unfinished(blob)
    }

    /// Deletes the leftovers from before this time (nanoseconds since 1970), or all of them, except for those that a pull
    /// has taken. Needs no free space.
    pub fn drop_unfinished(&self, before: Option<i64>) -> Removed {
        self.content.drop_unfinished(before)
    }
}
