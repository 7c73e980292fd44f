//! [`History`]: bytes of layers that arrived in the last hour, by half minutes. Pure: the board of pulls and the time are arguments.
//! Kept by [`super::report::Reporter`].

use std::collections::HashMap;

use image_manager::{EndedPull, PullInFlight};

/// Seconds of one interval.
pub(super) const INTERVAL: i64 = 30;
/// Number of intervals that are kept: an hour.
pub(super) const INTERVALS: usize = 120;

/// Bytes by interval.
#[derive(Debug)]
pub(super) struct History {
    /// A ring: the interval with number `n` has its bytes at `n % INTERVALS`.
    bytes: [u64; INTERVALS],
    /// Number of the last interval since 1970.
    last: i64,
    /// Bytes of the running pulls that were counted already.
    counted: HashMap<u64, u64>,
    /// Number of the last ended pull that was counted.
    ended: u64,
}

impl History {
    /// Creates an empty history that begins at `second` of 1970.
    pub(super) fn new(second: i64) -> Self {
        Self { bytes: [0; INTERVALS], last: second.div_euclid(INTERVAL), counted: HashMap::new(), ended: 0 }
    }

    /// Counts the bytes that arrived since the last call.
    pub(super) fn count(&mut self, second: i64, running: &[PullInFlight], ended: &[EndedPull]) {
        self.advance(second);
        let mut received = 0_u64;
        for pull in ended.iter().filter(|pull| pull.number > self.ended) {
            let before = self.counted.remove(&pull.id).unwrap_or_default();
            received = received.saturating_add(pull.received_bytes.saturating_sub(before));
        }
        self.ended = ended.iter().map(|pull| pull.number).max().unwrap_or_default().max(self.ended);
        self.counted.retain(|id, _| running.iter().any(|pull| pull.id == *id));
        for pull in running {
            let before = self.counted.insert(pull.id, pull.received_bytes).unwrap_or_default();
            received = received.saturating_add(pull.received_bytes.saturating_sub(before));
        }
        let bytes = &mut self.bytes[slot(self.last)];
        *bytes = bytes.saturating_add(received);
    }

    /// Bytes of every interval, oldest first; the last one has only begun.
    pub(super) fn intervals(&self) -> Vec<u64> {
        let first = self.last - INTERVALS as i64 + 1;
        (first..=self.last).map(|number| self.bytes[slot(number)]).collect()
    }

    /// Makes the interval of `second` the last one. After the clock was set back, the last interval stays in use.
    fn advance(&mut self, second: i64) {
        let now = second.div_euclid(INTERVAL);
        let skipped = now.saturating_sub(self.last).clamp(0, INTERVALS as i64);
        for number in now - skipped + 1..=now {
            self.bytes[slot(number)] = 0;
        }
        self.last = self.last.max(now);
    }
}

fn slot(number: i64) -> usize {
    usize::try_from(number.rem_euclid(INTERVALS as i64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::view::samples::{ended, running};
    use super::*;

    #[test]
    fn every_byte_is_counted_once() {
        let mut history = History::new(0);
        history.count(0, &[running(1, 100)], &[]);
        history.count(10, &[running(1, 150), running(2, 7)], &[]);
        // The first one ends with more bytes than were seen, and another pull started and ended in between.
        history.count(40, &[running(2, 7)], &[ended(1, 1, 180), ended(2, 3, 1000)]);
        history.count(50, &[running(2, 7)], &[ended(1, 1, 180), ended(2, 3, 1000)]);
        // A layer that has to be fetched again does not reduce the count.
        history.count(60, &[running(2, 3)], &[]);
        let intervals = history.intervals();
        assert_eq!(intervals.len(), INTERVALS);
        assert_eq!(intervals[INTERVALS - 3..], [157, 1030, 0]);
        assert_eq!(intervals.iter().sum::<u64>(), 1187);
        assert_eq!(history.ended, 2);
    }

    #[test]
    fn an_hour_is_kept_and_clocks_may_jump() {
        let mut history = History::new(1_000_000);
        history.count(1_000_000, &[running(1, 5)], &[]);
        history.count(1_000_000 + 3600, &[running(1, 9)], &[]);
        assert_eq!(history.intervals().iter().sum::<u64>(), 4, "what is older than an hour is gone");
        history.count(0, &[running(1, 10)], &[]);
        assert_eq!(history.intervals().last(), Some(&5), "a clock that was set back");
        history.count(i64::MAX, &[running(1, 10)], &[]);
        assert_eq!(history.intervals().iter().sum::<u64>(), 0);
    }
}
