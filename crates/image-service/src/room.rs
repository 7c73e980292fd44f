//! [`Room`]: the space that layers in flight still need on the store's file system, so that a pull that cannot fit is
//! refused before it fetches anything. A layer is counted with the compressed size that its descriptor promises, less
//! the bytes fetched so far; at least that much is written. It asks no file system: the caller passes in the free
//! bytes. [`crate::pull::assemble`] makes the claims, the layer jobs report progress.

use base::lock::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use oci::Digest;

/// Space that all pulls of an engine have been promised. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Room {
    promises: Arc<Mutex<HashMap<Digest, Promise>>>,
    /// True if blobs are kept: the compressed layer is stored in addition to the unpacked one.
    keeps: bool,
}

/// Space for one layer.
struct Promise {
    size: u64,
    done: u64,
    /// How often that many bytes are written.
    times: u64,
    /// Bytes of the tar stream that these became.
    unpacked: u64,
    /// How many claims hold it: a layer of two pulls is written once.
    claims: usize,
}

impl Promise {
    fn left(&self) -> u64 {
        self.size.saturating_sub(self.done).saturating_mul(self.times)
    }
}

/// Space that one pull has been promised, by blob and size. Dropping it gives the space back.
pub(crate) struct Claim {
    room: Room,
    blobs: BTreeMap<Digest, u64>,
    /// Free bytes of the file system when the claim was first made.
    free: Option<u64>,
}

/// Space that a pull that ran out of it would have needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Bytes that must be free for all of it, about; those that others have been promised are among them.
    pub(crate) bytes: u64,
    /// The same from what has come alone, whatever was free: what a quota must let be written.
    pub(crate) least: u64,
    /// Free bytes of the file system when the pull began.
    pub(crate) free: Option<u64>,
}

/// The error of a pull that does not fit on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at least {needed} bytes are needed, {free} bytes are free{}", of_others(*.promised))]
pub(crate) struct Short {
    /// Bytes that this pull needs.
    needed: u64,
    /// Free bytes of the file system.
    free: u64,
    /// Bytes that other pulls in flight have been promised and have not written yet.
    promised: u64,
}

fn of_others(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(", and other pulls still need {bytes} of them") }
}

impl Short {
    /// How many bytes must be free for it to fit.
    pub(crate) fn bytes(&self) -> u64 {
        self.needed.saturating_add(self.promised)
    }
}

impl Room {
    pub(crate) fn new(keeps: bool) -> Self {
        Self { keeps, ..Self::default() }
    }

    /// A claim for nothing.
    pub(crate) fn claim(&self) -> Claim {
        Claim { room: self.clone(), blobs: BTreeMap::new(), free: None }
    }

    /// Sets the number of bytes of a layer that have been fetched; fewer than before if it is fetched again.
    pub(crate) fn done(&self, blob: &Digest, bytes: u64) {
        if let Some(promise) = self.lock().get_mut(blob) {
            promise.done = bytes;
        }
    }

    /// Sets the number of bytes of its tar stream that have been unpacked; fewer than before if it is fetched again.
    pub(crate) fn unpacked(&self, blob: &Digest, bytes: u64) {
        if let Some(promise) = self.lock().get_mut(blob) {
            promise.unpacked = bytes;
        }
    }

    /// Bytes that all pulls are yet to write, at least.
    pub(crate) fn promised(&self) -> u64 {
        sum(self.lock().values().map(Promise::left))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Promise>> {
        // Nothing here panics half way.
        self.promises.lock()
    }
}

impl Claim {
    /// Returns true if all of these are in the claim.
    pub(crate) fn covers(&self, blobs: &BTreeMap<Digest, u64>) -> bool {
        blobs.keys().all(|blob| self.blobs.contains_key(blob))
    }

    /// Makes it a claim for these blobs, where the file system has `free` bytes. Blobs without an earlier claim must
    /// fit in addition to everything promised; blobs that another pull is already fetching always fit.
    ///
    /// # Errors
    /// The blobs do not fit. The claim is then for nothing.
    pub(crate) fn set(&mut self, blobs: BTreeMap<Digest, u64>, free: u64) -> Result<(), Short> {
        self.free.get_or_insert(free);
        let times = if self.room.keeps { 2 } else { 1 };
        let mut promises = self.room.lock();
        // First hold, then let go: what is under way keeps its count of bytes.
        for blob in blobs.keys() {
            if let Some(promise) = promises.get_mut(blob) {
                promise.claims += 1;
            }
        }
        release(&mut promises, &std::mem::take(&mut self.blobs));
        let promised = sum(promises.iter().filter(|(blob, _)| !blobs.contains_key(blob)).map(|(_, p)| p.left()));
        let needed =
            sum(blobs.iter().map(|(blob, size)| promises.get(blob).map_or(size.saturating_mul(times), Promise::left)));
        let more = blobs.keys().any(|blob| !promises.contains_key(blob));
        if more && needed.saturating_add(promised) > free {
            release(&mut promises, &blobs);
            return Err(Short { needed, free, promised });
        }
        for (blob, &size) in &blobs {
            promises.entry(blob.clone()).or_insert(Promise { size, done: 0, times, unpacked: 0, claims: 1 });
        }
        self.blobs = blobs;
        Ok(())
    }

    /// Returns the space that the whole claim takes, estimated from the bytes so far: the rest is assumed to unpack to
    /// as much as they did.
    pub(crate) fn need(&self) -> Need {
        let promises = self.room.lock();
        let own = || self.blobs.keys().filter_map(|blob| promises.get(blob));
        let (done, unpacked) = (sum(own().map(|p| p.done)), sum(own().map(|p| p.unpacked)));
        let of_all = (unpacked, done);
        let takes = |promise: &Promise| {
            let (unpacked, done) = if promise.done > 0 { (promise.unpacked, promise.done) } else { of_all };
            let whole = u128::from(promise.size.max(promise.done)) * u128::from(unpacked) / u128::from(done.max(1));
            let whole = u64::try_from(whole).unwrap_or(u64::MAX).max(promise.unpacked).max(promise.size);
            whole.saturating_add(promise.size.saturating_mul(promise.times - 1))
        };
        let promised = sum(promises.iter().filter(|(blob, _)| !self.blobs.contains_key(blob)).map(|(_, p)| p.left()));
        let bytes = sum(own().map(takes)).saturating_add(promised);
        // Files end within blocks, and directories take some as well.
        let least = bytes.saturating_add(bytes / 16);
        let mut bytes = least;
        let free = self.free.filter(|free| *free < u64::MAX);
        if let Some(free) = free.filter(|_| bytes > 0) {
            // A few compressed bytes can stand for a great many: that they were not enough is all that is known then.
            bytes = bytes.max(free.saturating_add(free / 8));
        }
        Need { bytes, least, free }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        release(&mut self.room.lock(), &self.blobs);
    }
}

fn release(promises: &mut HashMap<Digest, Promise>, blobs: &BTreeMap<Digest, u64>) {
    for blob in blobs.keys() {
        if let Some(promise) = promises.get_mut(blob) {
            promise.claims -= 1;
            if promise.claims == 0 {
                promises.remove(blob);
            }
        }
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blobs(list: &[(&str, u64)]) -> BTreeMap<Digest, u64> {
        list.iter().map(|(name, size)| (Digest::sha256(name.as_bytes()), *size)).collect()
    }

    #[test]
    fn what_others_are_promised_counts_until_it_is_written() {
        let room = Room::default();
        let mut first = room.claim();
        first.set(blobs(&[("a", 60), ("b", 10)]), 100).expect("fits");
        let mut second = room.claim();
        let short = second.set(blobs(&[("c", 40)]), 100).expect_err("does not fit beside it");
        assert_eq!(short, Short { needed: 40, free: 100, promised: 70 });
        assert_eq!(
            short.to_string(),
            "at least 40 bytes are needed, 100 bytes are free, and other pulls still need 70 of them"
        );
        // Fifty bytes of it are on the disk: less is free, and less is promised.
        room.done(&Digest::sha256(b"a"), 50);
        second.set(blobs(&[("c", 30)]), 50).expect("fits now");
        // A layer that is fetched again needs all its space again.
        room.done(&Digest::sha256(b"a"), 0);
        drop(second);
        second = room.claim();
        second.set(blobs(&[("c", 31)]), 100).expect_err("does not fit again");
        drop(first);
        second.set(blobs(&[("c", 100)]), 100).expect("all is given back");
    }

    #[test]
    fn a_blob_that_is_kept_is_written_beside_what_becomes_of_it() {
        let room = Room::new(true);
        let (mut first, mut second) = (room.claim(), room.claim());
        first.set(blobs(&[("a", 60)]), 100).expect_err("twice sixty");
        first.set(blobs(&[("a", 40)]), 100).expect("twice forty");
        room.done(&Digest::sha256(b"a"), 10);
        let short = second.set(blobs(&[("b", 10)]), 70).expect_err("sixty are still to come");
        assert_eq!((short.needed, short.promised), (20, 60));
        room.unpacked(&Digest::sha256(b"a"), 30);
        // A hundred and twenty for the files, forty for the blob.
        assert_eq!(first.need().bytes, 160 + 10);
    }

    #[test]
    fn a_layer_of_two_pulls_is_counted_once_and_until_the_last_has_left() {
        let room = Room::default();
        let (mut first, mut second, mut third) = (room.claim(), room.claim(), room.claim());
        first.set(blobs(&[("base", 60)]), 100).expect("fits");
        second.set(blobs(&[("base", 60), ("own", 30)]), 100).expect("fits with what is shared");
        drop(first);
        let short = third.set(blobs(&[("x", 11)]), 100).expect_err("the second still brings both");
        assert_eq!(short.promised, 90);
        // Joining a layer in flight needs no more space, however little there is.
        third.set(blobs(&[("base", 60)]), 0).expect("nothing more is written");
    }

    #[test]
    fn what_is_needed_grows_with_what_has_come() {
        let room = Room::default();
        let (mut claim, mut other) = (room.claim(), room.claim());
        assert_eq!(claim.need(), Need { bytes: 0, least: 0, free: None });
        claim.set(blobs(&[("a", 100), ("b", 60)]), 1000).expect("fits");
        other.set(blobs(&[("c", 160)]), 1000).expect("fits");
        // 160 of its own, 160 of others; and a sixteenth.
        assert_eq!(claim.need(), Need { bytes: 1125, least: 340, free: Some(1000) }, "it was not enough");
        room.done(&Digest::sha256(b"a"), 50);
        room.unpacked(&Digest::sha256(b"a"), 400);
        // 800 for the one, 480 for the other at the same rate, 160 of others; and a sixteenth.
        assert_eq!(claim.need().bytes, 1440 + 90, "more is known");
        room.done(&Digest::sha256(b"a"), 0);
        room.unpacked(&Digest::sha256(b"a"), u64::MAX);
        assert_eq!(claim.need().bytes, u64::MAX);
    }

    #[test]
    fn a_claim_follows_what_the_config_tells() {
        let room = Room::default();
        let mut claim = room.claim();
        claim.set(blobs(&[("a", 60), ("b", 30)]), 100).expect("fits");
        assert!(claim.covers(&blobs(&[("a", 60)])) && !claim.covers(&blobs(&[("a", 60), ("c", 1)])));
        room.done(&Digest::sha256(b"b"), 20);
        claim.set(blobs(&[("b", 30), ("c", 70)]), 80).expect("a is not needed after all, and most of b is there");
        claim.set(blobs(&[("d", u64::MAX), ("e", u64::MAX)]), u64::MAX - 1).expect_err("no size wraps around");
        assert!(room.lock().is_empty(), "a refused claim holds nothing");
    }
}
