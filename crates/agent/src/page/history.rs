//! [`History`]: bytes of layers that arrived in the last hour, and the highest rate, by half minutes. Pure: the board of pulls and the time
//! are arguments.
//! Kept by [`super::report::Reporter`].

use std::collections::HashMap;

use image_manager::{EndedPull, PullInFlight};

/// Seconds of one interval.
pub(super) const INTERVAL: i64 = 30;
/// Number of intervals that are kept: an hour.
pub(super) const INTERVALS: usize = 120;

/// An interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    /// Bytes that arrived.
    pub(super) bytes: u64,
    /// The highest rate of all pulls together, in bytes per second: that of running pulls as the page shows it, and that of each ended one.
    pub(super) rate: u64,
}

/// Intervals of the last hour.
#[derive(Debug)]
pub(super) struct History {
    /// A ring: the interval with number `n` is at `n % INTERVALS`.
    intervals: [Interval; INTERVALS],
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
        Self {
            intervals: [Interval::default(); INTERVALS],
            last: second.div_euclid(INTERVAL),
            counted: HashMap::new(),
            ended: 0,
        }
    }

    /// Counts the bytes that arrived since the last call.
    pub(super) fn count(&mut self, second: i64, running: &[PullInFlight], ended: &[EndedPull]) {
        self.advance(second);
        let mut received = 0_u64;
        let mut highest = current_rate(running);
        for pull in ended.iter().filter(|pull| pull.number > self.ended) {
            highest = highest.max(rate(pull).unwrap_or_default());
            let before = self.counted.remove(&pull.id).unwrap_or_default();
            received = received.saturating_add(pull.received_bytes.saturating_sub(before));
        }
        self.ended = ended.iter().map(|pull| pull.number).max().unwrap_or_default().max(self.ended);
        self.counted.retain(|id, _| running.iter().any(|pull| pull.id == *id));
        for pull in running {
            let before = self.counted.insert(pull.id, pull.received_bytes).unwrap_or_default();
            received = received.saturating_add(pull.received_bytes.saturating_sub(before));
        }
        let interval = &mut self.intervals[slot(self.last)];
        interval.bytes = interval.bytes.saturating_add(received);
        interval.rate = interval.rate.max(highest).max(interval.bytes / INTERVAL.unsigned_abs());
    }

    /// Returns every interval, oldest first; the last one has only begun.
    pub(super) fn intervals(&self) -> Vec<Interval> {
        let first = self.last - INTERVALS as i64 + 1;
        (first..=self.last).map(|number| self.intervals[slot(number)]).collect()
    }

    /// Makes the interval of `second` the last one. After the clock was set back, the last interval stays in use.
    fn advance(&mut self, second: i64) {
        let now = second.div_euclid(INTERVAL);
        let skipped = now.saturating_sub(self.last).clamp(0, INTERVALS as i64);
        for number in now - skipped + 1..=now {
            self.intervals[slot(number)] = Interval::default();
        }
        self.last = self.last.max(now);
    }
}

/// Returns the bytes per second of all running pulls together.
pub(super) fn current_rate(running: &[PullInFlight]) -> u64 {
    running.iter().filter_map(|pull| pull.bytes_per_second).fold(0, u64::saturating_add)
}

/// Returns the average bytes per second of a pull, without its time in the queue; `None` if it received nothing.
pub(super) fn rate(pull: &EndedPull) -> Option<u64> {
    let running = pull.duration_milliseconds.saturating_sub(pull.queued_milliseconds);
    (pull.received_bytes > 0).then(|| pull.received_bytes.saturating_mul(1000).checked_div(running))?
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
        let bytes: Vec<u64> = intervals.iter().map(|interval| interval.bytes).collect();
        assert_eq!(bytes[INTERVALS - 3..], [157, 1030, 0]);
        assert_eq!(bytes.iter().sum::<u64>(), 1187);
        assert_eq!(history.ended, 2);
    }

    #[test]
    fn an_hour_is_kept_and_clocks_may_jump() {
        let mut history = History::new(1_000_000);
        history.count(1_000_000, &[running(1, 5)], &[]);
        history.count(1_000_000 + 3600, &[running(1, 9)], &[]);
        let bytes = |history: &History| history.intervals().iter().map(|interval| interval.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&history).iter().sum::<u64>(), 4, "older than an hour");
        history.count(0, &[running(1, 10)], &[]);
        assert_eq!(bytes(&history).last(), Some(&5), "a clock that was set back");
        history.count(i64::MAX, &[running(1, 10)], &[]);
        assert_eq!(bytes(&history).iter().sum::<u64>(), 0);
    }

    #[test]
    fn the_peak_is_no_less_than_any_rate_that_was_shown() {
        let mut history = History::new(0);
        let of = |history: &History| history.intervals().last().map(|interval| interval.rate);
        // 23.4 MB/s of each running pull, however few bytes arrived in the half minute.
        history.count(0, &[running(1, 100), running(2, 100)], &[]);
        assert_eq!(of(&history), Some(2 * 23_400_000));
        history.count(31, &[], &[ended(1, 1, 500_000_000)]);
        assert_eq!(of(&history), Some(50_000_000), "that of a pull of ten seconds that ended");
        history.count(35, &[], &[ended(1, 1, 500_000_000)]);
        assert_eq!(of(&history), Some(50_000_000));
        let idle = EndedPull { duration_milliseconds: 0, ..ended(9, 9, 7) };
        assert_eq!((rate(&idle), rate(&ended(9, 9, 0))), (None, None));
    }
}
