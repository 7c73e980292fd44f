//! [`MakeRoom`]: what the manager asks of garbage collection. A pull that found the disk full asks for space; pulls that are
//! under way are held, so that nobody removes what they bring. The collector implements it; no pull waits for another here.

use lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Clock;

/// Makes room for pulls.
#[async_trait]
pub trait MakeRoom: Send + Sync {
    /// Frees space for a pull that failed because there was none; `needed`: so many bytes would have to be available, where
    /// that is known. Never removes what must stay. Whoever asks holds nothing that this needs.
    async fn make_room(&self, needed: Option<u64>) -> Room;

    /// A pull of this image begins: as long as the answer lives, and a little longer, the image is not removed.
    fn hold(&self, image: &str) -> Option<Hold> {
        let _ = image;
        None
    }
}

/// Result of making room for a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// Images that went.
    pub removed: usize,
    /// True if the bytes that were needed are available now.
    pub enough: bool,
    /// Why there is not more of it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Room {
    /// Returns true if another try is worth it.
    pub(crate) fn helps(&self) -> bool {
        self.enough || self.removed > 0 || self.freed_bytes > 0
    }
}

/// So many names are kept without a look at their age.
const MANY: usize = 1024;
/// Longer than any linger.
const LONG: Duration = Duration::from_secs(3600);

/// Images that pulls are about to bring, or have just brought.
pub(crate) struct Holds {
    clock: Clock,
    /// Guards the names: how many pulls there are of each, and when the last one ended.
    names: Mutex<BTreeMap<String, ImagePulls>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ImagePulls {
    pulls: usize,
    ended: Option<Instant>,
}

impl Holds {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, names: Mutex::default() })
    }

    pub(crate) fn hold(self: &Arc<Self>, image: &str) -> Hold {
        let now = (self.clock)();
        let mut names = self.lock();
        if names.len() >= MANY {
            // Where nobody collects, nobody asks for the names either.
            names.retain(|_, held| held.pulls > 0 || held.ended.is_some_and(|at| now.duration_since(at) < LONG));
        }
        names.entry(image.to_owned()).or_default().pulls += 1;
        drop(names);
        Hold { holds: Arc::clone(self), image: image.to_owned() }
    }

    /// The names of pulls that run, and of those that ended no longer than `linger` ago. Forgets the others.
    pub(crate) fn names(&self, linger: Duration) -> Vec<String> {
        let now = (self.clock)();
        let mut names = self.lock();
        names.retain(|_, held| held.pulls > 0 || held.ended.is_some_and(|at| now.duration_since(at) < linger));
        names.keys().cloned().collect()
    }

    fn lock(&self) -> lock::MutexGuard<'_, BTreeMap<String, ImagePulls>> {
        self.names.lock()
    }
}

/// See [`MakeRoom::hold`].
#[must_use = "the image is held as long as this lives"]
pub struct Hold {
    holds: Arc<Holds>,
    image: String,
}

impl Drop for Hold {
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
        let holds = Holds::new(Arc::new(Instant::now));
        let minute = Duration::from_secs(60);
        let (first, second) = (holds.hold("a:1"), holds.hold("a:1"));
        tokio::time::advance(minute * 10).await;
        assert_eq!(holds.names(minute), ["a:1"]);
        drop(first);
        tokio::time::advance(minute * 10).await;
        assert_eq!(holds.names(minute), ["a:1"]);
        drop(second);
        tokio::time::advance(minute - Duration::from_secs(1)).await;
        assert_eq!(holds.names(minute), ["a:1"]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(holds.names(minute).is_empty());
        assert!(holds.lock().is_empty(), "nothing is kept of it");
    }

    #[tokio::test(start_paused = true)]
    async fn names_do_not_pile_up_where_nobody_asks_for_them() {
        let holds = Holds::new(Arc::new(Instant::now));
        let running = holds.hold("running");
        for number in 0..MANY * 4 {
            drop(holds.hold(&format!("image:{number}")));
            tokio::time::advance(LONG / 100).await;
        }
        assert!(holds.lock().len() <= MANY, "{}", holds.lock().len());
        assert!(holds.lock().contains_key("running"));
        drop(running);
    }
}
