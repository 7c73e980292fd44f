//! Space for pulls that found none: [`MakeRoom`] as collection does it. One collection serves everybody who waits for it; it
//! needs nothing of the puller. Pulls that are under way are known here, so that nobody removes what they bring.

use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::collector::ImageGcManager;
use super::disk::{DiskSpace, Shortage};
use super::policy::GcPolicy;
use super::report::{GcReport, chain};
use super::trigger::Trigger;
use crate::make_room::{Hold, MakeRoom, Room};

/// The last collection for a pull.
#[derive(Clone, Debug, Default)]
pub(super) struct LastRoom {
    /// How many there were.
    number: u64,
    room: Room,
}

#[async_trait]
impl MakeRoom for ImageGcManager {
    async fn make_room(&self, needed: Option<u64>) -> Room {
        let before = self.rooms.load(Ordering::Acquire);
        let mut last = self.room.lock().await;
        // One that ended while this pull waited for it has freed for this pull as well, if it was enough.
        if last.number > before && last.room.removed > 0 && (needed.is_none() || self.fits(needed).await) {
            return last.room.clone();
        }
        let result = self.round(Trigger::Pull, None, |space| shortage(space, &self.options.policy, needed)).await;
        let (report, error) = result.unwrap_or_else(|error| (GcReport::default(), Some(error)));
        let room = Room {
            freed_bytes: report.freed_bytes,
            removed: report.removed.len(),
            enough: self.fits(needed).await,
            problem: error.as_ref().map(chain),
        };
        *last = LastRoom { number: last.number + 1, room: room.clone() };
        self.rooms.store(last.number, Ordering::Release);
        room
    }

    fn hold(&self, image: &str) -> Option<Hold> {
        Some(self.holds.hold(image))
    }
}

impl ImageGcManager {
    /// Whether there is room for what a pull needs, as far as that is known.
    async fn fits(&self, needed: Option<u64>) -> bool {
        let Some(needed) = needed else { return false };
        match self.measure().await {
            Ok((_, space)) => space.available >= needed,
            Err(error) => {
                tracing::debug!("whether a pull fits now is not known: {}", chain(&error));
                false
            }
        }
    }
}

/// What has to be freed for a pull: what it lacks, and above the high mark what collection would free anyway. Where nobody
/// knows what it lacks: until the low mark; below that as much as there is, so that there is twice as much for it.
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
