//! Leftovers of interrupted pulls, kept for a while under `ingest/` so that a later pull need not fetch them again: layers that
//! were whole and in no image yet ([`WholeLayer`]), and the fetched parts of blobs ([`Spool`]). A small file next to each
//! describes it. Nothing is synced, so nothing is trusted: a layer is compared with its own stream and diff id before any pull
//! gets it, a blob piece by piece with digests. No image and no record of the database refers to them.
//!
//! Their disk usage is counted, and they are removed before anything else: by age, by number, or all of them when space is
//! needed. [`crate::maintenance::sweep`] finds them again when the store is opened; the image service requests them, and decides
//! what is left.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::sync::Arc;

use base::lock::MutexGuard;
use oci::Digest;
use rustix::fs::{AtFlags, Timespec, Timestamps, utimensat};

use crate::content::left::{self, LAYER, LeftKind, LeftWork, SPOOL, note_name};
use crate::content::private::Private;
use crate::content::{Content, LeftTable};
use crate::disk::layout::{self, number};
use crate::records::entries::Removed;

/// Nanoseconds from 1970 to 2020: a clock that was ever set shows no earlier time.
const UNSET: i64 = 1_577_836_800_000_000_000;

/// The most leftovers that are kept; the oldest are removed first.
const MOST: usize = 64;

/// Layers and parts of blobs that interrupted pulls left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Layers that are whole.
    pub layers: u64,
    /// Blobs of which a part is present.
    pub blobs: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and directories on the disk.
    pub inodes: u64,
}

impl Content {
    /// Counts the leftovers from recorded numbers, without measuring the disk.
    pub(crate) fn unfinished(&self) -> Unfinished {
        self.left().values().fold(Unfinished::default(), |sum, left| Unfinished {
            layers: sum.layers + u64::from(matches!(left.what, LeftKind::Layer(_))),
            blobs: sum.blobs + u64::from(matches!(left.what, LeftKind::Spool { .. })),
            // A record says what it likes.
            bytes: sum.bytes.saturating_add(left.bytes),
            inodes: sum.inodes.saturating_add(left.inodes),
        })
    }

    /// Takes the time, in nanoseconds since 1970, for what was left while the clock showed another one: with what is of the future,
    /// and with what is of a time before any clock was set, it begins to grow old now.
    pub(crate) fn note_clock(&self, now: i64) {
        let mut table = self.left();
        for (number, left) in table.iter_mut().filter(|(_, left)| left.at > now || (left.at < UNSET && now >= UNSET)) {
            left.at = now;
            let time = Timespec { tv_sec: now.div_euclid(1_000_000_000), tv_nsec: now.rem_euclid(1_000_000_000) };
            let times = Timestamps { last_access: time, last_modification: time };
            let name = note_name(*number, left.what.note_suffix());
            if let Err(error) = utimensat(&self.catalog.disk.layout.ingest, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
                tracing::debug!(%error, number, "the age of what a pull left is not written down");
            }
        }
    }

    /// The origins of everything that is left of this blob, as its pulls named them.
    pub(crate) fn origins_of_unfinished(&self, blob: &Digest) -> BTreeSet<String> {
        let table = self.left();
        let of_blob = table.values().filter_map(|left| match &left.what {
            LeftKind::Layer(record) => (record.blob == *blob).then(|| record.origin.clone()),
            LeftKind::Spool { blob: of, origin, .. } => (of == blob).then(|| origin.clone()),
        });
        of_blob.collect()
    }

    /// Deletes what was left before this time (nanoseconds since 1970), or all of it. What a pull has taken up is not among it.
    /// Needs no free space.
    pub(crate) fn drop_unfinished(self: &Arc<Self>, before: Option<i64>) -> Removed {
        let goes = |left: &LeftWork| before.is_none_or(|before| left.at < before);
        let gone: LeftTable = {
            let mut table = self.left();
            let numbers: Vec<u64> = table.iter().filter(|(_, left)| goes(left)).map(|(number, _)| *number).collect();
            numbers.into_iter().filter_map(|number| table.remove_entry(&number)).collect()
        };
        self.delete_left(gone)
    }

    /// Locks the table. Held only for searching, inserting and removing.
    pub(crate) fn left(&self) -> MutexGuard<'_, LeftTable> {
        self.left.lock()
    }

    /// Keeps the content of a private name as a leftover.
    pub(crate) fn leave(self: &Arc<Self>, private: Private, left: LeftWork) {
        let number = private.leave();
        let mut table = self.left();
        table.insert(number, left);
        let surplus = surplus(&mut table);
        drop(table);
        self.delete_left(surplus);
    }

    /// Takes out what fits.
    pub(crate) fn take_left<T>(self: &Arc<Self>, fits: impl Fn(&LeftKind) -> Option<T>) -> Option<(Private, T)> {
        let mut table = self.left();
        let (number, found) = table.iter().find_map(|(number, left)| Some((*number, fits(&left.what)?)))?;
        let note = table.remove(&number)?.what.note_suffix();
        drop(table);
        Some((Private::again(self, number, note), found))
    }

    fn delete_left(self: &Arc<Self>, gone: LeftTable) -> Removed {
        let mut freed = Removed::default();
        for (number, left) in gone {
            freed.freed_bytes = freed.freed_bytes.saturating_add(left.bytes);
            freed.freed_inodes = freed.freed_inodes.saturating_add(left.inodes);
            drop(Private::again(self, number, left.what.note_suffix()));
        }
        if freed.freed_bytes > 0 {
            self.catalog.refill_reserve();
        }
        freed
    }

    /// Finds the usable leftovers among the names under `ingest/`. Returns the names to keep; everything else is unreferenced.
    /// Layers that a commit had moved have only their records under `ingest/`; these stay until [`Self::bring_back`].
    pub(crate) fn find_left(&self, names: &[OsString]) -> (BTreeSet<OsString>, LeftTable) {
        let (mut table, mut moved) = (LeftTable::new(), LeftTable::new());
        let Some(since) = self.unfinished_since else { return (BTreeSet::new(), moved) };
        let directory = self.catalog.disk.layout.path.join(layout::INGEST);
        let there: BTreeSet<u64> = names.iter().filter_map(number).collect();
        for name in names {
            let Some((number, suffix)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            let table = match (there.contains(&number), suffix) {
                (true, _) => &mut table,
                (false, LAYER) => &mut moved,
                (false, _) => continue,
            };
            let found = match suffix {
                LAYER => left::find_layer(&directory, number),
                SPOOL => left::find_spool(&directory, number),
                _ => continue,
            };
            match found {
                Ok(left) if left.at >= since || left.at < UNSET => drop(table.insert(number, left)),
                Ok(_) => tracing::debug!(number, "what a pull left is too old"),
                Err(error) => tracing::debug!(number, %error, "what a pull left cannot be used"),
            }
        }
        surplus(&mut table);
        let mut stay = BTreeSet::new();
        for (number, left) in &table {
            self.note_busy(&number.to_string(), true);
            stay.insert(number.to_string().into());
            stay.insert(note_name(*number, left.what.note_suffix()).into());
        }
        stay.extend(moved.keys().map(|number| note_name(*number, LAYER).into()));
        *self.left() = table;
        (stay, moved)
    }

    /// Takes back the layers that a commit had moved to `layers/` when it was killed. `strays` are the names that no record of
    /// the database has; some of them are the layers whose records [`Self::find_left`] has found. Those that are taken back are
    /// removed from `strays`.
    pub(crate) fn bring_back(&self, mut moved: LeftTable, strays: &mut Vec<CString>) {
        let ingest = &self.catalog.disk.layout.ingest;
        if !moved.is_empty() {
            strays.retain(|name| {
                let found = rustix::fs::statat(&self.catalog.disk.layout.layers, name, AtFlags::SYMLINK_NOFOLLOW);
                let is_it = |left: &LeftWork| {
                    matches!((&left.what, &found), (LeftKind::Layer(record), Ok(found)) if record.inode == found.st_ino)
                };
                let Some(number) = moved.iter().find(|(_, left)| is_it(left)).map(|(number, _)| *number) else { return true };
                if let Err(error) = rustix::fs::renameat(&self.catalog.disk.layout.layers, name, ingest, number.to_string()) {
                    tracing::debug!(number, %error, "a layer that a commit had moved cannot be taken back");
                    return true;
                }
                tracing::info!(number, "a layer of a commit that was cut off is kept for the next pull");
                self.note_busy(&number.to_string(), true);
                self.left().extend(moved.remove_entry(&number));
                false
            });
        }
        // The layers of the remaining records are committed, or no longer exist.
        for number in moved.keys() {
            let _ = rustix::fs::unlinkat(ingest, note_name(*number, LAYER), AtFlags::empty());
        }
    }
}

/// Takes out what is too much, the oldest first.
pub(crate) fn surplus(table: &mut LeftTable) -> LeftTable {
    let mut surplus = LeftTable::new();
    while table.len() > MOST {
        let Some(oldest) = table.iter().min_by_key(|(_, left)| left.at).map(|(number, _)| *number) else { break };
        surplus.extend(table.remove_entry(&oldest));
    }
    surplus
}
