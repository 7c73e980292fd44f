//! The check: finds out what in the store is no longer as it was written, and how to repair it. Reads whole layers on a few
//! threads while pulls and removals continue; only the last step, which examines the records and repairs, blocks commits. Never
//! deletes anything that is whole. The image service calls it.
//!
//! A layer that is damaged loses its files and keeps its record: the images that have it are absent until a pull fetches this one
//! layer again, and keep their names and pins. A damaged kept blob is only removed: its images have all they need.

mod fix;
mod inspect;
mod kept;
mod names;
mod problem;
mod records;
mod settle;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::lock::Mutex;
use cri_api::engine::{CheckProgress, CheckReport};
use oci::Digest;
use problem::{Faults, Verdict};

use crate::disk::layer::{LayerId, Shape};
use crate::error::StoreError;
use crate::options::Cancelled;
use crate::records::entries::{BlobEntry, LayerEntry};
use crate::records::tables::Records;
use crate::store::Store;

/// After an unclean stop, so much of the latest writes is read, in a second or so; the rest is examined without being read, which
/// finds files that are missing or too short.
const RECENT_BYTES: u64 = 256 << 20;

/// How thoroughly layers are examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Every file that the layer's recipe names is present and long enough; the recipe is whole.
    Sizes,
    /// The tar stream is built again and has the diff id.
    #[default]
    Digest,
    /// Also, every file, directory and link has the owner, mode, times, target and attributes of the stream, and no other file is
    /// present.
    Files,
}

/// The extent of a check, and its consequences.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// How thoroughly layers are examined.
    pub depth: Depth,
    /// True to put right what is wrong.
    pub repair: bool,
    /// Only what was written before an unclean stop; nothing after a clean one.
    pub recent_only: bool,
    /// Asked often. The check ends soon after it says so.
    pub cancelled: Cancelled<'a>,
    /// Receives the progress, from several threads.
    pub progress: &'a (dyn Fn(CheckProgress) + Sync),
}

/// Why a check ended early.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The caller cancelled it.
    #[error("the check was given up")]
    Cancelled,
    /// Disk or database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A layer to examine.
struct LayerTarget {
    id: LayerId,
    entry: LayerEntry,
    depth: Depth,
}

/// A kept blob to examine.
struct BlobTarget {
    digest: Digest,
    entry: BlobEntry,
    depth: Depth,
}

/// All layers and blobs to examine.
struct Targets {
    layers: Vec<LayerTarget>,
    blobs: Vec<BlobTarget>,
}

impl Targets {
    fn len(&self) -> usize {
        self.layers.len() + self.blobs.len()
    }

    /// How many bytes will be read, about.
    fn bytes(&self) -> u64 {
        let layers = self.layers.iter().filter(|target| target.depth > Depth::Sizes);
        let blobs = self.blobs.iter().filter(|target| target.depth > Depth::Sizes);
        layers.map(|target| target.entry.stats.content_bytes).sum::<u64>()
            + blobs.map(|target| target.entry.size).sum::<u64>()
    }
}

struct Checker<'a> {
    store: &'a Store,
}

impl Store {
    /// Checks the store, and repairs it where `options` say so. Of the report, the forms of the layers and unfinished pulls stay
    /// empty.
    ///
    /// # Errors
    /// See [`CheckError`]. What is wrong with the store is no error but a part of the answer.
    pub fn check(&self, options: &CheckOptions<'_>) -> Result<CheckReport, CheckError> {
        Checker { store: self }.check(options)
    }
}

impl Checker<'_> {
    fn check(&self, options: &CheckOptions<'_>) -> Result<CheckReport, CheckError> {
        let unclean = self.store.catalog.lock.unclean_since();
        let since = match (options.recent_only, unclean) {
            (true, None) => return Ok(CheckReport::default()),
            (true, Some(since)) => since,
            (false, _) => 0,
        };
        let next = *self.store.maintenance.commit.lock();
        let targets = self.targets(options, since)?;
        let (bad, bytes) = self.inspect(&targets, options)?;
        if (options.cancelled)() {
            return Err(CheckError::Cancelled);
        }
        let mut report = self.check_records(&bad, options.repair)?;
        (report.layers_checked, report.bytes_checked) = (targets.layers.len() as u64, bytes);
        let is_settled = options.repair || report.problems.is_empty();
        if is_settled && unclean.is_some() && options.depth >= Depth::Digest {
            let path = || self.store.catalog.disk.layout.path.join(crate::disk::layout::LOCK);
            self.store.catalog.good_up_to(next).map_err(|source| StoreError::io("write", path(), source))?;
        }
        Ok(report)
    }

    /// Collects the targets: layers, those written last first, and then kept blobs.
    fn targets(&self, options: &CheckOptions<'_>, since: u64) -> Result<Targets, StoreError> {
        let (mut rows, blobs) =
            self.store.catalog.db.read(|records| Ok::<_, StoreError>((records.layer_rows()?, records.blob_rows()?)))?;
        rows.reverse();
        let mut budget = if options.recent_only { RECENT_BYTES } else { u64::MAX };
        let mut targets = Vec::new();
        for (id, entry) in rows {
            // An unreadable entry is reported with the records.
            let Ok(entry) = entry else { continue };
            // On a disk without space, files of older layers may have been removed before their records.
            let is_recent = id.0 >= since || !Shape::is_there(&self.store.catalog.disk.layout.layers, id);
            if entry.damaged || !is_recent {
                continue;
            }
            let left = budget.checked_sub(entry.stats.content_bytes);
            let depth = if left.is_some() { options.depth } else { options.depth.min(Depth::Sizes) };
            budget = left.unwrap_or(0);
            targets.push(LayerTarget { id, entry, depth });
        }
        // No image needs them: after an unclean stop their sizes are enough.
        let depth = if options.recent_only { options.depth.min(Depth::Sizes) } else { options.depth };
        let blobs = blobs.into_iter().filter_map(|(_, row)| row.ok()).filter(|(_, entry)| entry.number >= since);
        let blobs = blobs.map(|(digest, entry)| BlobTarget { digest, entry, depth }).collect();
        Ok(Targets { layers: targets, blobs })
    }

    /// Examines layers and blobs on a few threads. Returns the faults, and how many bytes were read.
    fn inspect(&self, targets: &Targets, options: &CheckOptions<'_>) -> Result<(Faults, u64), CheckError> {
        let bytes_total = targets.bytes();
        let (next, layers, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let tell = || {
            let (layers, bytes) = (layers.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            (options.progress)(CheckProgress { layers, layers_total: targets.len() as u64, bytes, bytes_total });
        };
        let bad = Mutex::new(Faults::default());
        let bad_now = || bad.lock();
        let read = |more| {
            bytes.fetch_add(more, Ordering::Relaxed);
            tell();
        };
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= targets.len() || (options.cancelled)() {
                    return;
                }
                let verdict = match targets.layers.get(at) {
                    Some(target) => self.inspect_layer(target, &read, options.cancelled),
                    None => self.inspect_blob(&targets.blobs[at - targets.layers.len()], &read, options.cancelled),
                };
                match (verdict, targets.layers.get(at)) {
                    (Verdict::Good, _) => {}
                    (Verdict::Fault(found), Some(target)) => drop(bad_now().layers.insert(target.id, found)),
                    (Verdict::Fault(found), None) => {
                        drop(bad_now().blobs.insert(targets.blobs[at - targets.layers.len()].entry.number, found));
                    }
                    (Verdict::Cancelled, _) => return,
                }
                layers.fetch_add(1, Ordering::Relaxed);
                tell();
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4).min(targets.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // With fewer threads it takes longer.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        Ok((bad.into_inner(), bytes.into_inner()))
    }
}
