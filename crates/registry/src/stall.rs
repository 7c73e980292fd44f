//! [`StallWatch`]: decides whether the connection that holds a blob up delivers so little that another one should be
//! tried. Counts only the time in which the reader waited for its bytes, so that a slow reader does not make a
//! connection look slow. Pure: times are arguments. A second connection that is no better makes it more patient, so
//! that a slow line is left alone.

use std::time::Duration;

/// When a connection that delivers next to nothing is replaced. The old one stays until the new one has overtaken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallPolicy {
    /// Longest time without a byte.
    pub quiet: Duration,
    /// Or fewer than `minimum` bytes a second arrived in so long.
    pub window: Duration,
    /// Bytes a second; see `window`.
    pub minimum: u64,
}

impl Default for StallPolicy {
    fn default() -> Self {
        Self { quiet: Duration::from_secs(5), window: Duration::from_secs(15), minimum: 8 << 10 }
    }
}

/// The patience is at most doubled so many times.
const MOST: u32 = 5;

/// The time waited for one connection, and the bytes that it delivered.
#[derive(Debug)]
pub(crate) struct StallWatch {
    policy: StallPolicy,
    patience: u32,
    /// Time waited since the last byte.
    quiet: Duration,
    /// Time waited in this window.
    waited: Duration,
    bytes: u64,
}

impl StallWatch {
    pub(crate) fn new(policy: StallPolicy) -> Self {
        Self { policy, patience: 0, quiet: Duration::ZERO, waited: Duration::ZERO, bytes: 0 }
    }

    /// Starts again for another connection, or another stretch of the blob.
    pub(crate) fn begin(&mut self) {
        (self.quiet, self.waited, self.bytes) = (Duration::ZERO, Duration::ZERO, 0);
    }

    /// Counts received bytes.
    pub(crate) fn received(&mut self, bytes: u64) {
        if bytes > 0 {
            self.quiet = Duration::ZERO;
            self.bytes += bytes;
        }
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        self.quiet += time;
        self.waited += time;
    }

    /// How long it may be waited on before it is to be judged.
    pub(crate) fn left(&self) -> Duration {
        let quiet = self.patient(self.policy.quiet).saturating_sub(self.quiet);
        quiet.min(self.window().saturating_sub(self.waited))
    }

    /// How long a second connection has to overtake the first.
    pub(crate) fn window(&self) -> Duration {
        self.patient(self.policy.window)
    }

    /// Returns true if another connection is worth a try. At the end of a window the next one begins.
    pub(crate) fn is_stalled(&mut self) -> bool {
        if self.quiet >= self.patient(self.policy.quiet) {
            return true;
        }
        if self.waited < self.window() {
            return false;
        }
        let least = u128::from(self.policy.minimum) * self.waited.as_millis() / 1000;
        let slow = u128::from(self.bytes) < least;
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        slow
    }

    /// Records that another connection was no better or could not be opened.
    pub(crate) fn attempt_failed(&mut self) {
        self.patience = (self.patience + 1).min(MOST);
        self.begin();
    }

    /// Records that another connection is better.
    pub(crate) fn replaced(&mut self) {
        self.patience = 0;
        self.begin();
    }

    fn patient(&self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn watch() -> StallWatch {
        StallWatch::new(StallPolicy { quiet: seconds(5), window: seconds(15), minimum: 1000 })
    }

    #[test]
    fn silence_is_a_stall() {
        let mut watch = watch();
        watch.waited(seconds(4));
        assert_eq!((watch.left(), watch.is_stalled()), (seconds(1), false));
        watch.received(1);
        watch.waited(seconds(4));
        assert!(!watch.is_stalled());
        watch.waited(seconds(1));
        assert_eq!((watch.left(), watch.is_stalled()), (seconds(0), true));
    }

    #[test]
    fn dripping_is_a_stall_and_steady_progress_is_not() {
        for (each, want) in [(900, true), (1100, false)] {
            let mut watch = watch();
            let mut stalled = Vec::new();
            for _ in 0..30 {
                watch.waited(seconds(1));
                watch.received(each);
                stalled.push(watch.is_stalled());
            }
            assert_eq!(stalled.iter().any(|s| *s), want, "{each} bytes a second");
        }
    }

    #[test]
    fn time_without_a_waiter_does_not_count() {
        let mut watch = watch();
        for _ in 0..100 {
            watch.received(10);
            watch.waited(Duration::from_millis(1));
            assert!(!watch.is_stalled());
        }
    }

    #[test]
    fn useless_attempts_back_off() {
        let mut watch = watch();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(watch.left().as_secs());
            watch.waited(watch.left());
            assert!(watch.is_stalled());
            watch.attempt_failed();
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 160, 160]);
        watch.replaced();
        assert_eq!(watch.left(), seconds(5));
    }
}
