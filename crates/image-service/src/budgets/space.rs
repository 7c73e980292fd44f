//! [`SpaceReservations`]: the space that layers in flight still need on the store's file system, so that a pull that cannot
//! fit is refused before it fetches anything. A layer counts with the compressed size of its descriptor less the bytes
//! fetched so far: at least that much is written. The caller passes the free bytes; no file system is asked here. Pulls
//! make the claims, layer jobs report their progress.

use base::lock::{Mutex, MutexGuard};
use base::units::bytes;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use cri_api::{Error, Reason};
use oci::Digest;

use crate::error;

/// Space reserved for all pulls of an engine. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct SpaceReservations {
    reservations: Arc<Mutex<HashMap<Digest, Reservation>>>,
    /// True if blobs are kept: the compressed layer is stored in addition to the unpacked one.
    keeps_blobs: bool,
}

/// Space for one layer.
struct Reservation {
    size: u64,
    done: u64,
    /// Number of times that these bytes are written.
    times: u64,
    /// Bytes of the tar stream unpacked so far.
    unpacked: u64,
    /// Number of claims on it: a layer of two pulls is written once.
    claims: usize,
}

impl Reservation {
    fn remaining(&self) -> u64 {
        self.size.saturating_sub(self.done).saturating_mul(self.times)
    }
}

/// Space reserved for one pull, by blob and size, until it is dropped.
pub(crate) struct SpaceClaim {
    space: SpaceReservations,
    blobs: BTreeMap<Digest, u64>,
    /// Free bytes of the file system when the claim was first made.
    free: Option<u64>,
}

/// Space that a pull needs, estimated when it ran out of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceRequirement {
    /// Estimated bytes that must be free for the whole pull, including the reservations of other pulls.
    pub(crate) bytes: u64,
    /// The same estimate without regard to the free bytes: the bytes that a quota must allow.
    pub(crate) minimum: u64,
    /// Free bytes of the file system when the pull began.
    pub(crate) free: Option<u64>,
}

/// The error of a pull that does not fit on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} are needed{}, {} are free", bytes(self.needed_bytes()), other_pulls(*.reserved), bytes(*.free))]
pub(crate) struct InsufficientSpace {
    /// Bytes that this pull needs.
    needed: u64,
    /// Free bytes of the file system.
    free: u64,
    /// Bytes that are reserved for other pulls in flight and not yet written.
    reserved: u64,
}

fn other_pulls(bytes: u64) -> &'static str {
    if bytes == 0 { "" } else { " for this pull and those in progress" }
}

impl InsufficientSpace {
    /// Makes the error of the pull, for the store at `root`, in the same words as for a disk that fills up during a pull.
    pub(crate) fn into_error(self, root: &Path) -> Error {
        error::disk_full(root, &self).with_needed_bytes(self.needed_bytes())
    }

    /// Returns the number of bytes that must be free for the pull to fit.
    fn needed_bytes(&self) -> u64 {
        self.needed.saturating_add(self.reserved)
    }
}

impl SpaceRequirement {
    /// Adds the requirement to the error of a pull that ran out of space. Other errors stay as they are.
    pub(crate) fn add_to(self, error: Error) -> Error {
        let is_full = error.reason().is_some_and(Reason::is_disk_full);
        if !is_full || error.needed_bytes().is_some() || self.bytes == 0 {
            return error;
        }
        if error.reason() == Some(Reason::QuotaExceeded) {
            // The file system may have many free bytes that this user or directory must not take: as many more are needed.
            let message = format!("{}; {} are needed", error.message(), bytes(self.minimum));
            let needed = self.free.map(|free| free.saturating_add(self.minimum));
            let error = error.with_message(message);
            return needed.into_iter().fold(error, Error::with_needed_bytes);
        }
        let was_free = self.free.map_or(String::new(), |free| format!(", {} were free", bytes(free)));
        let message = format!("{}; {} are needed{was_free}", error.message(), bytes(self.bytes));
        error.with_message(message).with_needed_bytes(self.bytes)
    }
}

impl SpaceReservations {
    pub(crate) fn new(keeps_blobs: bool) -> Self {
        Self { keeps_blobs, ..Self::default() }
    }

    /// Makes an empty claim.
    pub(crate) fn claim(&self) -> SpaceClaim {
        SpaceClaim { space: self.clone(), blobs: BTreeMap::new(), free: None }
    }

    /// Sets the number of bytes of a layer that have been fetched; fewer than before if it is fetched again.
    pub(crate) fn set_fetched(&self, blob: &Digest, bytes: u64) {
        if let Some(reservation) = self.lock().get_mut(blob) {
            reservation.done = bytes;
        }
    }

    /// Sets the number of bytes of a layer's tar stream that have been unpacked; fewer than before if it is fetched again.
    pub(crate) fn set_unpacked(&self, blob: &Digest, bytes: u64) {
        if let Some(reservation) = self.lock().get_mut(blob) {
            reservation.unpacked = bytes;
        }
    }

    /// Returns the minimum number of bytes that all pulls have yet to write.
    pub(crate) fn reserved(&self) -> u64 {
        sum(self.lock().values().map(Reservation::remaining))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Reservation>> {
        self.reservations.lock()
    }
}

impl SpaceClaim {
    /// Returns true if the claim has all of these blobs.
    pub(crate) fn covers(&self, blobs: &BTreeMap<Digest, u64>) -> bool {
        blobs.keys().all(|blob| self.blobs.contains_key(blob))
    }

    /// Sets the claim to these blobs, for a file system with `free` bytes. Blobs without an earlier claim must
    /// fit in addition to everything reserved; blobs that another pull is already fetching always fit.
    ///
    /// # Errors
    /// The blobs do not fit. The claim is then empty.
    pub(crate) fn set(&mut self, blobs: BTreeMap<Digest, u64>, free: u64) -> Result<(), InsufficientSpace> {
        self.free.get_or_insert(free);
        let times = if self.space.keeps_blobs { 2 } else { 1 };
        let mut reservations = self.space.lock();
        // Hold the new blobs before releasing the old ones, so that blobs in both keep their byte counts.
        for blob in blobs.keys() {
            if let Some(reservation) = reservations.get_mut(blob) {
                reservation.claims += 1;
            }
        }
        release(&mut reservations, &std::mem::take(&mut self.blobs));
        let reserved =
            sum(reservations.iter().filter(|(blob, _)| !blobs.contains_key(blob)).map(|(_, p)| p.remaining()));
        let needed = sum(blobs
            .iter()
            .map(|(blob, size)| reservations.get(blob).map_or(size.saturating_mul(times), Reservation::remaining)));
        let more = blobs.keys().any(|blob| !reservations.contains_key(blob));
        if more && needed.saturating_add(reserved) > free {
            release(&mut reservations, &blobs);
            return Err(InsufficientSpace { needed, free, reserved });
        }
        for (blob, &size) in &blobs {
            reservations.entry(blob.clone()).or_insert(Reservation { size, done: 0, times, unpacked: 0, claims: 1 });
        }
        self.blobs = blobs;
        Ok(())
    }

    /// Estimates the space of the whole claim: the remaining bytes are assumed to unpack at the ratio so far.
    pub(crate) fn requirement(&self) -> SpaceRequirement {
        let reservations = self.space.lock();
        let own = || self.blobs.keys().filter_map(|blob| reservations.get(blob));
        let (done, unpacked) = (sum(own().map(|p| p.done)), sum(own().map(|p| p.unpacked)));
        let of_all = (unpacked, done);
        let takes = |reservation: &Reservation| {
            let (unpacked, done) = if reservation.done > 0 { (reservation.unpacked, reservation.done) } else { of_all };
            let whole =
                u128::from(reservation.size.max(reservation.done)) * u128::from(unpacked) / u128::from(done.max(1));
            let whole = u64::try_from(whole).unwrap_or(u64::MAX).max(reservation.unpacked).max(reservation.size);
            whole.saturating_add(reservation.size.saturating_mul(reservation.times - 1))
        };
        let reserved =
            sum(reservations.iter().filter(|(blob, _)| !self.blobs.contains_key(blob)).map(|(_, p)| p.remaining()));
        let bytes = sum(own().map(takes)).saturating_add(reserved);
        // Files are rounded up to blocks, and directories take blocks as well.
        let minimum = bytes.saturating_add(bytes / 16);
        let mut bytes = minimum;
        let free = self.free.filter(|free| *free < u64::MAX);
        if let Some(free) = free.filter(|_| bytes > 0) {
            // The ratio so far may be far too low. Only this is certain: the free bytes were not enough.
            bytes = bytes.max(free.saturating_add(free / 8));
        }
        SpaceRequirement { bytes, minimum, free }
    }
}

impl Drop for SpaceClaim {
    fn drop(&mut self) {
        release(&mut self.space.lock(), &self.blobs);
    }
}

fn release(reservations: &mut HashMap<Digest, Reservation>, blobs: &BTreeMap<Digest, u64>) {
    for blob in blobs.keys() {
        if let Some(reservation) = reservations.get_mut(blob) {
            reservation.claims -= 1;
            if reservation.claims == 0 {
                reservations.remove(blob);
            }
        }
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::io;

    use cri_api::Kind;
    use store::StoreError;

    use super::*;

    fn blobs(list: &[(&str, u64)]) -> BTreeMap<Digest, u64> {
        list.iter().map(|(name, size)| (Digest::sha256(name.as_bytes()), *size)).collect()
    }

    #[test]
    fn errors_of_full_disks_state_the_required_space() {
        let limited = Error::new(Kind::ResourceExhausted, "429 Too Many Requests");
        let full = |message: &str| Error::new(Kind::ResourceExhausted, message).with_reason(Reason::DiskFull);
        let requirement = SpaceRequirement { bytes: 700, minimum: 600, free: Some(500) };
        let error = requirement.add_to(full("layer x: no space left on the file system of /s: write y"));
        assert_eq!(
            error.message(),
            "layer x: no space left on the file system of /s: write y; 700B are needed, 500B were free"
        );
        assert_eq!(error.needed_bytes(), Some(700));
        assert_eq!(SpaceRequirement { bytes: 1, minimum: 1, free: None }.add_to(error.clone()), error, "stated once");
        assert_eq!(requirement.add_to(limited.clone()), limited, "a rate limit is not a full disk");
    }

    /// Free space next to an exhausted quota is not available: the whole requirement must be freed.
    #[test]
    fn free_space_does_not_count_where_a_quota_is_exhausted() {
        let exhausted = io::Error::from_raw_os_error(122);
        let error = StoreError::Io { operation: "write", path: "/s/ingest/1/fs/a".into(), source: exhausted };
        let error = error::from_store(Path::new("/s"), &error);
        assert_eq!(error.kind(), Kind::ResourceExhausted);
        assert!(
            error.message().starts_with("no space left on the file system of /s (a quota is used up): "),
            "{error}"
        );
        for (free, needed) in [(Some(5000), Some(5600)), (None, None)] {
            let error = SpaceRequirement { bytes: 7000, minimum: 600, free }.add_to(error.clone());
            assert!(error.message().ends_with("; 600B are needed"), "{error}");
            assert_eq!(error.needed_bytes(), needed);
        }
    }

    #[test]
    fn reservations_of_other_pulls_count_until_they_are_written() {
        let space = SpaceReservations::default();
        let mut first = space.claim();
        first.set(blobs(&[("a", 60), ("b", 10)]), 100).expect("fits");
        let mut second = space.claim();
        let error = second.set(blobs(&[("c", 40)]), 100).expect_err("does not fit next to the first");
        assert_eq!(error, InsufficientSpace { needed: 40, free: 100, reserved: 70 });
        assert_eq!(error.to_string(), "110B are needed for this pull and those in progress, 100B are free");
        // Fifty bytes are on the disk: fewer are free, and fewer are reserved.
        space.set_fetched(&Digest::sha256(b"a"), 50);
        second.set(blobs(&[("c", 30)]), 50).expect("fits now");
        // A layer that is fetched again needs all its space again.
        space.set_fetched(&Digest::sha256(b"a"), 0);
        drop(second);
        second = space.claim();
        second.set(blobs(&[("c", 31)]), 100).expect_err("does not fit again");
        drop(first);
        second.set(blobs(&[("c", 100)]), 100).expect("everything is released");
    }

    #[test]
    fn kept_blobs_count_in_addition_to_their_layers() {
        let space = SpaceReservations::new(true);
        let (mut first, mut second) = (space.claim(), space.claim());
        first.set(blobs(&[("a", 60)]), 100).expect_err("twice sixty");
        first.set(blobs(&[("a", 40)]), 100).expect("twice forty");
        space.set_fetched(&Digest::sha256(b"a"), 10);
        let error = second.set(blobs(&[("b", 10)]), 70).expect_err("sixty are not written yet");
        assert_eq!((error.needed, error.reserved), (20, 60));
        space.set_unpacked(&Digest::sha256(b"a"), 30);
        // A hundred and twenty for the files, forty for the blob.
        assert_eq!(first.requirement().bytes, 160 + 10);
    }

    #[test]
    fn shared_layers_count_once_until_the_last_claim_is_dropped() {
        let space = SpaceReservations::default();
        let (mut first, mut second, mut third) = (space.claim(), space.claim(), space.claim());
        first.set(blobs(&[("base", 60)]), 100).expect("fits");
        second.set(blobs(&[("base", 60), ("own", 30)]), 100).expect("fits with the shared layer");
        drop(first);
        let error = third.set(blobs(&[("x", 11)]), 100).expect_err("the second still fetches both");
        assert_eq!(error.reserved, 90);
        // Joining a layer in flight needs no more space, however little there is.
        third.set(blobs(&[("base", 60)]), 0).expect("nothing more is written");
    }

    #[test]
    fn requirement_grows_with_the_bytes_unpacked_so_far() {
        let space = SpaceReservations::default();
        let (mut claim, mut other) = (space.claim(), space.claim());
        assert_eq!(claim.requirement(), SpaceRequirement { bytes: 0, minimum: 0, free: None });
        claim.set(blobs(&[("a", 100), ("b", 60)]), 1000).expect("fits");
        other.set(blobs(&[("c", 160)]), 1000).expect("fits");
        // 160 of its own, 160 of others; and a sixteenth.
        assert_eq!(
            claim.requirement(),
            SpaceRequirement { bytes: 1125, minimum: 340, free: Some(1000) },
            "the free bytes were not enough"
        );
        space.set_fetched(&Digest::sha256(b"a"), 50);
        space.set_unpacked(&Digest::sha256(b"a"), 400);
        // 800 for the one, 480 for the other at the same rate, 160 of others; and a sixteenth.
        assert_eq!(claim.requirement().bytes, 1440 + 90, "the ratio is known");
        space.set_fetched(&Digest::sha256(b"a"), 0);
        space.set_unpacked(&Digest::sha256(b"a"), u64::MAX);
        assert_eq!(claim.requirement().bytes, u64::MAX);
    }

    #[test]
    fn claims_follow_the_plan_of_the_config() {
        let space = SpaceReservations::default();
        let mut claim = space.claim();
        claim.set(blobs(&[("a", 60), ("b", 30)]), 100).expect("fits");
        assert!(claim.covers(&blobs(&[("a", 60)])) && !claim.covers(&blobs(&[("a", 60), ("c", 1)])));
        space.set_fetched(&Digest::sha256(b"b"), 20);
        claim.set(blobs(&[("b", 30), ("c", 70)]), 80).expect("a is not needed, and most of b is fetched");
        claim.set(blobs(&[("d", u64::MAX), ("e", u64::MAX)]), u64::MAX - 1).expect_err("no size wraps around");
        assert!(space.lock().is_empty(), "a refused claim holds nothing");
    }
}
