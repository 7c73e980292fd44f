//! Limits for fetching one blob by several ranges: [`RangePolicy`], the [`Memory`] in which bytes wait for their turn,
//! and [`HostRanges`], the permits for connections to a host and the record of what it has shown. Decides nothing about
//! a blob (see `pace`) and asks no host. `blob` and the client use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::lock::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long what a host has shown is believed.
const REMEMBER: Duration = Duration::from_secs(600);

/// When, and how much, a blob is fetched by several connections. A blob always begins as one plain request.
#[derive(Clone, Debug, PartialEq)]
pub struct RangePolicy {
    /// Connections for one blob; 1 is what one has without ranges.
    pub per_blob: u32,
    /// Connections for ranges to one host, in addition to the first one of each blob.
    pub per_host: u32,
    /// The least that must be left of a blob for another connection to be worth it.
    pub min_left: u64,
    /// The smallest and the largest range that is asked for.
    pub chunk: (u64, u64),
    /// How long a speed is measured before it is judged.
    pub window: Duration,
    /// A line with this many bytes a second is not the bottleneck: no reader inflates faster.
    pub enough: u64,
}

impl Default for RangePolicy {
    fn default() -> Self {
        Self {
            per_blob: 4,
            per_host: 12,
            min_left: 8 << 20,
            chunk: (512 << 10, 4 << 20),
            window: Duration::from_millis(200),
            enough: 250_000_000,
        }
    }
}

/// Memory that the process can spare. The holder of a share may hold as many bytes; dropping the share gives them back.
pub trait Memory: Send + Sync {
    /// Takes so many bytes, if they can be spared at this moment. Never waits.
    fn try_take(&self, bytes: usize) -> Option<Box<dyn Send + Sync>>;
}

/// A fixed number of bytes: the [`Memory`] of a client that was given no other.
#[derive(Debug)]
pub struct Allowance {
    left: Arc<AtomicUsize>,
}

impl Allowance {
    /// The bytes of [`Allowance::default`].
    pub const DEFAULT: usize = 16 << 20;

    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Returns the number of bytes that no share holds.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl Memory for Allowance {
    fn try_take(&self, bytes: usize) -> Option<Box<dyn Send + Sync>> {
        let take = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        Some(Box::new(TakenBytes { left: Arc::clone(&self.left), bytes }))
    }
}

struct TakenBytes {
    left: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for TakenBytes {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::SeqCst);
    }
}

/// The range connections of one host.
pub(crate) struct HostRanges {
    /// Permits for connections in addition to the first one of each blob.
    connections: Arc<Semaphore>,
    /// The record of what the host has shown, and until when it counts.
    seen: Mutex<RangeRecord>,
}

#[derive(Clone, Copy)]
struct RangeRecord {
    /// This many connections were worth it.
    useful: u32,
    /// The most connections that are worth it, or that the host accepts; 1 where it does not do ranges.
    ceiling: u32,
    until: Option<Instant>,
}

const UNSEEN: RangeRecord = RangeRecord { useful: 1, ceiling: u32::MAX, until: None };

impl HostRanges {
    pub(crate) fn new(per_host: u32) -> Self {
        Self { connections: Arc::new(Semaphore::new(per_host as usize)), seen: Mutex::new(UNSEEN) }
    }

    /// A connection more, if the host may have one.
    pub(crate) fn connection(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    /// Returns the number of connections known to be worth it, and the most.
    pub(crate) fn seen(&self, now: Instant) -> (u32, u32) {
        let seen = self.current(now);
        (seen.useful, seen.ceiling)
    }

    /// Records that so many connections were worth it.
    pub(crate) fn useful(&self, level: u32, now: Instant) {
        let mut seen = self.current(now);
        seen.useful = level;
        seen.until = Some(now + REMEMBER);
    }

    /// Records that more than so many are not.
    pub(crate) fn ceiling(&self, level: u32, now: Instant) {
        let mut seen = self.current(now);
        seen.ceiling = level.max(1);
        seen.useful = seen.useful.min(seen.ceiling);
        seen.until = Some(now + REMEMBER);
    }

    fn current(&self, now: Instant) -> MutexGuard<'_, RangeRecord> {
        let mut seen = self.seen.lock();
        if seen.until.is_some_and(|until| now >= until) {
            *seen = UNSEEN;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_never_more_than_it_was() {
        let memory = Allowance::new(100);
        let first = memory.try_take(60).expect("is there");
        assert!(memory.try_take(41).is_none());
        let second = memory.try_take(40).expect("the rest");
        drop(first);
        assert_eq!(memory.left(), 60);
        drop(second);
        assert_eq!(memory.left(), 100);
    }

    #[test]
    fn observed_host_behaviour_is_cached() {
        let host = HostRanges::new(1);
        let now = Instant::now();
        assert_eq!(host.seen(now), (1, u32::MAX));
        host.useful(4, now);
        assert_eq!(host.seen(now), (4, u32::MAX));
        host.ceiling(2, now);
        assert_eq!(host.seen(now), (2, 2));
        assert_eq!(host.seen(now + REMEMBER), (1, u32::MAX));
        let held = host.connection().expect("one");
        assert!(host.connection().is_none());
        drop(held);
        assert!(host.connection().is_some());
    }
}
