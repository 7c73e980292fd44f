//! Collections of [`ImageGcManager`] for pulls that found the disk full. One collection serves all pulls that wait for it, and does not
//! call the puller.

use std::sync::atomic::Ordering;

use super::disk::{DiskSpace, Shortage};
use super::manager::{ImageGcManager, LastPullCollection};
use super::metrics::Trigger;
use super::policy::GcPolicy;
use super::report::{GcReport, chain};
use crate::reclaim_space::ReclaimedSpace;

impl ImageGcManager {
    /// Frees space for a pull; see [`ReclaimSpace::reclaim_space`](crate::ReclaimSpace::reclaim_space).
    pub(super) async fn reclaim_for_pull(&self, needed: Option<u64>) -> ReclaimedSpace {
        let before = self.pull_collections.load(Ordering::Acquire);
        let mut last = self.last_pull_collection.lock().await;
        // A collection that ended while this pull waited has freed space for this pull as well, if it was enough.
        if last.number > before && last.reclaimed.removed > 0 && (needed.is_none() || self.fits(needed).await) {
            return last.reclaimed.clone();
        }
        let result = {
            let policy = self.context.options().policy;
            self.round(Trigger::Pull, None, |space| shortage(space, &policy, needed)).await
        };
        let (report, error) = result.unwrap_or_else(|error| (GcReport::default(), Some(error)));
        let reclaimed = ReclaimedSpace {
            freed_bytes: report.freed_bytes,
            removed: report.removed.len(),
            enough: self.fits(needed).await,
            problem: error.as_ref().map(chain),
        };
        *last = LastPullCollection { number: last.number + 1, reclaimed: reclaimed.clone() };
        self.pull_collections.store(last.number, Ordering::Release);
        reclaimed
    }

    /// Returns true if the file system is known to have the space for the pull.
    async fn fits(&self, needed: Option<u64>) -> bool {
        let Some(needed) = needed else { return false };
        match self.context.measure_image_fs().await {
            Ok((_, space)) => space.available >= needed,
            Err(error) => {
                tracing::debug!(error = chain(&error), "the free space for a pull cannot be measured");
                false
            }
        }
    }
}

/// Returns the shortage of a pull: the bytes that are missing, but above the high threshold at least the shortage of a periodic
/// round. If `needed` is not known, it is the distance to the low threshold, or below that threshold the available bytes, so that
/// twice as many become available.
fn shortage(space: DiskSpace, policy: &GcPolicy, needed: Option<u64>) -> Shortage {
    match needed {
        Some(needed) => {
            let at = Shortage::at(space, policy);
            Shortage { bytes: at.bytes.max(needed.saturating_sub(space.available)), ..at }
        }
        None => {
            let to = Shortage::to_low_mark(space, policy);
            if to.is_none() { Shortage { bytes: space.available.max(1), inodes: 0 } } else { to }
        }
    }
}

#[cfg(test)]
#[path = "reclaim_for_pull_tests.rs"]
mod tests;
