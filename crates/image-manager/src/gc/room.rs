//! Collections of [`ImageGcManager`] for pulls that found the disk full. One collection serves all pulls that wait for it, and needs
//! nothing of the puller.

use std::sync::atomic::Ordering;

use super::disk::{DiskSpace, Shortage};
use super::manager::{ImageGcManager, LastRoom};
use super::metrics::Trigger;
use super::policy::GcPolicy;
use super::report::{GcReport, chain};
use crate::make_room::Room;

impl ImageGcManager {
    /// Frees space for a pull; see [`MakeRoom::make_room`](crate::MakeRoom::make_room).
    pub(super) async fn room_for_pull(&self, needed: Option<u64>) -> Room {
        let before = self.rooms_made.load(Ordering::Acquire);
        let mut last = self.last_room.lock().await;
        // A collection that ended while this pull waited has freed space for this pull as well, if it was enough.
        if last.number > before && last.room.removed > 0 && (needed.is_none() || self.fits(needed).await) {
            return last.room.clone();
        }
        let result = {
            let policy = self.context.options().policy;
            self.round(Trigger::Pull, None, |space| shortage(space, &policy, needed)).await
        };
        let (report, error) = result.unwrap_or_else(|error| (GcReport::default(), Some(error)));
        let room = Room {
            freed_bytes: report.freed_bytes,
            removed: report.removed.len(),
            enough: self.fits(needed).await,
            problem: error.as_ref().map(chain),
        };
        *last = LastRoom { number: last.number + 1, room: room.clone() };
        self.rooms_made.store(last.number, Ordering::Release);
        room
    }

    /// Returns true if the file system is known to have room for the pull.
    async fn fits(&self, needed: Option<u64>) -> bool {
        let Some(needed) = needed else { return false };
        match self.context.measure_image_fs().await {
            Ok((_, space)) => space.available >= needed,
            Err(error) => {
                tracing::debug!(error = chain(&error), "whether a pull fits now is not known");
                false
            }
        }
    }
}

/// The shortage of a pull: the bytes that it lacks, and above the high mark at least what a periodic round would free. If
/// `needed` is not known: up to the low mark, and below that mark as many bytes as are available, so that there are twice
/// as many.
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
#[path = "room_tests.rs"]
mod tests;
