//! [`ConnectionPace`]: over how many connections a blob is fetched, by the speed of its line. Pure: bytes, waits and
//! times are passed in, a number is returned. The number is raised only while the reader waits for bytes, stays up only
//! if that delivered more of them, and is lowered if it did not (twice, since one window may be noise), if the host
//! refuses more, or if the reader is slower than the line. `blob` drives it.

use std::time::Duration;

use tokio::time::Instant;

use crate::ranges::RangePolicy;

/// The reader waits for bytes for this part of the time: the line is what there is too little of.
const WAITS: f64 = 0.6;
/// The reader hardly waits: connections beyond the first only fill memory.
const BUSY: f64 = 0.1;
/// Twice the connections are kept if they deliver this many times the bytes; twice as many bytes would be the best
/// case.
const GAIN: f64 = 1.3;
/// The rest of the blob must take at least so many windows for another connection to be worth it.
const WORTH: f64 = 2.0;

/// The number of connections of one blob, and the measurements that it follows from.
#[derive(Debug)]
pub(crate) struct ConnectionPace {
    policy: RangePolicy,
    level: u32,
    /// The previous number of connections, and the speed that they reached.
    before: Option<(u32, f64)>,
    /// True once a window has shown that more connections do not help.
    doubted: bool,
    /// True if the level is not raised again for this blob.
    settled: bool,
    /// The first window after a change is not judged.
    settling: bool,
    /// Connections that were wanted could not all be had.
    starved: bool,
    since: Instant,
    bytes: u64,
    waited: Duration,
    /// How long an answer takes to begin.
    first_byte: Duration,
    /// Bytes a second of one connection.
    each: f64,
}

/// A limit that a host has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostObservation {
    /// So many connections are worth it.
    Useful(u32),
    /// More than so many are not.
    Ceiling(u32),
}

impl ConnectionPace {
    pub(crate) fn new(policy: RangePolicy, now: Instant) -> Self {
        let settled = policy.per_blob < 2;
        Self {
            policy,
            level: 1,
            before: None,
            doubted: false,
            settled,
            settling: false,
            starved: false,
            since: now,
            bytes: 0,
            waited: Duration::ZERO,
            first_byte: Duration::ZERO,
            each: 0.0,
        }
    }

    /// How many connections there should be.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Counts received bytes.
    pub(crate) fn received(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// A connection that was wanted could not be had, for memory or for the host's sake.
    pub(crate) fn starved(&mut self) {
        self.starved = true;
    }

    /// An answer began after so long.
    pub(crate) fn answered(&mut self, after: Duration) {
        self.first_byte = if self.first_byte.is_zero() { after } else { (self.first_byte * 3 + after) / 4 };
    }

    /// Limits the level for the rest of the blob: the host wants no more connections.
    pub(crate) fn limit(&mut self, level: u32) {
        self.level = self.level.min(level.max(1));
        self.settled = true;
        (self.before, self.doubted) = (None, false);
    }

    /// Returns the bytes of one range: enough that waiting for its answer to begin weighs little, and no more, since it
    /// has to be held.
    pub(crate) fn chunk(&self) -> u64 {
        let (least, most) = self.policy.chunk;
        let time = (self.first_byte * 8).max(Duration::from_millis(100)).as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded below")]
        let bytes = (self.each * time) as u64;
        bytes.clamp(least, most).next_multiple_of(64 << 10)
    }

    /// Judges the measured speed of the line, after it was measured for long enough. `left` is the bytes that no
    /// connection has asked for yet (with one connection: those that have not arrived), `seen` the numbers of
    /// connections that the host has shown before.
    pub(crate) fn tick(&mut self, now: Instant, left: u64, seen: (u32, u32)) -> Option<HostObservation> {
        if self.settled && self.level == 1 {
            return None;
        }
        let (useful, ceiling) = seen;
        let most = self.policy.per_blob.min(ceiling);
        let known = self.level == 1 && useful > 1;
        let long = if known { self.policy.window / 4 } else { self.policy.window.max(self.first_byte * 4) };
        let time = now.saturating_duration_since(self.since);
        if time < long || time.is_zero() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a speed need not be exact")]
        let rate = self.bytes as f64 / time.as_secs_f64();
        let waits = self.waited.as_secs_f64() / time.as_secs_f64();
        let starved = std::mem::take(&mut self.starved);
        (self.since, self.bytes, self.waited) = (now, 0, Duration::ZERO);
        // At the end connections run dry one after the other, so these rates do not count.
        if std::mem::take(&mut self.settling) || left == 0 {
            return None;
        }
        self.each = rate / f64::from(self.level);
        let mut learnt = None;
        if let Some((level, before)) = self.before.take() {
            let doubted = std::mem::take(&mut self.doubted);
            if rate >= before * GAIN {
                learnt = Some(HostObservation::Useful(self.level));
            } else if starved {
                self.settled = true;
            } else if !doubted {
                (self.before, self.doubted) = (Some((level, before)), true);
                return None;
            } else {
                self.level = level;
                self.each = rate / f64::from(level);
                if waits >= WAITS {
                    self.settled = true;
                    learnt = Some(HostObservation::Ceiling(level));
                }
                return learnt;
            }
        }
        if waits < BUSY {
            self.level = (self.level / 2).max(1);
            return learnt;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate needs no exact size")]
        let worth = left >= self.policy.min_left && left as f64 >= rate * long.as_secs_f64() * WORTH;
        #[expect(clippy::cast_precision_loss, reason = "a limit of a speed need not be exact")]
        let slow = rate < self.policy.enough as f64;
        if !self.settled && waits >= WAITS && slow && worth && self.level < most && rate > 0.0 {
            self.before = Some((self.level, rate));
            self.level = if known { useful.min(most) } else { (self.level * 2).min(most) };
            self.settling = true;
        }
        learnt
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
