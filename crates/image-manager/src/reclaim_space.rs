//! [`ReclaimSpace`]: the manager's interface to garbage collection. A pull that found the disk full requests space; the images of
//! running pulls are held, so that they are not removed. The collector implements the trait; no pull waits for another in it.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oci::ReferenceOrId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Clock;

/// Frees space for pulls by removing images.
#[async_trait]
pub trait ReclaimSpace: Send + Sync {
    /// Frees space for a pull that failed because the disk was full. `needed` is the number of bytes that must be available, if it
    /// is known. Images that must stay are never removed. The caller must not hold anything that collection waits for.
    async fn reclaim_space(&self, needed: Option<u64>) -> ReclaimedSpace;

    /// Holds an image for a pull that begins: it is not removed until the returned guard is dropped, and for a short time after.
    fn hold(&self, image: &ReferenceOrId) -> Option<ImageHold> {
        let _ = image;
        None
    }
}

/// Result of freeing space for a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Room")]
pub struct ReclaimedSpace {
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// Removed images.
    pub removed: usize,
    /// True if the requested bytes are available.
    pub enough: bool,
    /// Human-readable reason if not enough space was freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ReclaimedSpace {
    /// Returns true if the pull is worth another attempt.
    pub(crate) fn justifies_retry(&self) -> bool {
        self.enough || self.removed > 0 || self.freed_bytes > 0
    }
}

/// Up to this many images are kept without a check of their age.
const MANY: usize = 1024;
/// Longer than any linger.
const LONG: Duration = Duration::from_secs(3600);

/// Images that are being pulled, or were just pulled.
pub(crate) struct ImageHolds {
    clock: Clock,
    /// Guards the images: how many pulls there are of each, and when the last one ended.
    images: Mutex<HashMap<ReferenceOrId, ImagePulls>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ImagePulls {
    pulls: usize,
    ended: Option<Instant>,
}

impl ImageHolds {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, images: Mutex::default() })
    }

    pub(crate) fn hold(self: &Arc<Self>, image: &ReferenceOrId) -> ImageHold {
        let now = (self.clock)();
        let mut images = self.lock();
        if images.len() >= MANY {
            // Without a collector the images are never read, and so never removed elsewhere.
            images.retain(|_, held| held.pulls > 0 || held.ended.is_some_and(|at| now.duration_since(at) < LONG));
        }
        images.entry(image.clone()).or_default().pulls += 1;
        drop(images);
        ImageHold { holds: Arc::clone(self), image: image.clone() }
    }

    /// Returns the images of pulls that run, and of those that ended no longer than `linger` ago. Removes the rest.
    pub(crate) fn images(&self, linger: Duration) -> Vec<ReferenceOrId> {
        let now = (self.clock)();
        let mut images = self.lock();
        images.retain(|_, held| held.pulls > 0 || held.ended.is_some_and(|at| now.duration_since(at) < linger));
        images.keys().cloned().collect()
    }

    fn lock(&self) -> base::lock::MutexGuard<'_, HashMap<ReferenceOrId, ImagePulls>> {
        self.images.lock()
    }
}

/// Guard of an image that is not removed; see [`ReclaimSpace::hold`].
#[must_use = "the image is held as long as this lives"]
pub struct ImageHold {
    holds: Arc<ImageHolds>,
    image: ReferenceOrId,
}

impl Drop for ImageHold {
    fn drop(&mut self) {
        let now = (self.holds.clock)();
        if let Some(held) = self.holds.lock().get_mut(&self.image) {
            held.pulls -= 1;
            held.ended = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pull_is_held_until_a_while_after_its_end() {
        let holds = ImageHolds::new(Arc::new(Instant::now));
        let minute = Duration::from_secs(60);
        let image = ReferenceOrId::from("a:1");
        let (first, second) = (holds.hold(&image), holds.hold(&image));
        tokio::time::advance(minute * 10).await;
        assert_eq!(holds.images(minute), std::slice::from_ref(&image));
        drop(first);
        tokio::time::advance(minute * 10).await;
        assert_eq!(holds.images(minute), std::slice::from_ref(&image));
        drop(second);
        tokio::time::advance(minute - Duration::from_secs(1)).await;
        assert_eq!(holds.images(minute), std::slice::from_ref(&image));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(holds.images(minute).is_empty());
        assert!(holds.lock().is_empty(), "the entry is removed");
    }

    #[tokio::test(start_paused = true)]
    async fn images_do_not_accumulate_without_a_collector() {
        let holds = ImageHolds::new(Arc::new(Instant::now));
        let running = holds.hold(&"running".into());
        for number in 0..MANY * 4 {
            drop(holds.hold(&format!("image:{number}").into()));
            tokio::time::advance(LONG / 100).await;
        }
        assert!(holds.lock().len() <= MANY, "{}", holds.lock().len());
        assert!(holds.lock().contains_key(&"running".into()));
        drop(running);
    }
}
