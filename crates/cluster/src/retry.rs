//! Times of retries: [`Backoff`] doubles, and [`jittered`] spreads, so that a thousand nodes do not ask in the same
//! moment. Pure; randomness is an argument. Called by every loop of this crate.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// A number from 0 up to, without, 1.
pub type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Chance from the system.
#[must_use]
pub fn system_random() -> Random {
    let source = SystemRandom::new();
    Arc::new(move || {
        let mut bytes = [0; 4];
        // Without chance there is no spread, and nothing else is lost.
        let _ = source.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    })
}

/// Returns the duration, longer or shorter by up to this fraction.
#[must_use]
pub fn jittered(duration: Duration, fraction: f64, random: &Random) -> Duration {
    let factor = 1.0 + fraction * (2.0 * random() - 1.0);
    duration.mul_f64(factor.max(0.0))
}

/// Waits that double.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Waits from `first` up to `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, next: first, most }
    }

    /// Returns true if nothing was waited for since the last success: a failure now is news.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.next == self.first
    }

    /// Returns the next wait, up to a quarter longer or shorter than its base.
    pub fn next(&mut self, random: &Random) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.most);
        jittered(wait, 0.25, random)
    }

    /// Begins again with the first wait.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // upstream: nodestatus/TestCalculateDelay
    #[test]
    fn waits_double_and_are_spread() {
        let second = Duration::from_secs(1);
        let middle: Random = Arc::new(|| 0.5);
        let mut backoff = Backoff::new(second, 5 * second);
        let waits: Vec<u64> = (0..4).map(|_| backoff.next(&middle).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5]);
        assert!(!backoff.is_first());
        backoff.reset();
        assert!(backoff.is_first());
        assert_eq!(backoff.next(&middle), second);
        let (least, most): (Random, Random) = (Arc::new(|| 0.0), Arc::new(|| 1.0));
        assert_eq!(jittered(10 * second, 0.04, &least), Duration::from_millis(9600));
        assert_eq!(jittered(10 * second, 0.04, &most), Duration::from_millis(10_400));
        // The first report of a node's status is up to half of its period earlier or later.
        assert_eq!(
            (jittered(300 * second, 0.5, &least), jittered(300 * second, 0.5, &most)),
            (150 * second, 450 * second)
        );
        let random = system_random();
        assert!((0..100).map(|_| random()).all(|number| (0.0..1.0).contains(&number)));
    }
}
