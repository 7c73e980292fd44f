//! [`Backoff`]: waits that double with every failure up to a limit, each of them up to half longer by chance, so that the nodes
//! of a cluster do not come back all at once. Called by whoever asks an API server again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Waits after failures.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// Differs with every process.
    random: RandomState,
    drawn: u64,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, random: RandomState::new(), drawn: 0 }
    }

    /// How long to wait after another failure.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        let half = u64::try_from(wait.as_millis() / 2).unwrap_or(u64::MAX);
        wait + Duration::from_millis(self.random(half))
    }

    /// The next failure is the first one.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// A number of at most `most`.
    pub(crate) fn random(&mut self, most: u64) -> u64 {
        self.drawn += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.drawn);
        hasher.finish().checked_rem(most.saturating_add(1)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_limit_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        for want in [1, 2, 4, 5, 5] {
            let wait = backoff.next().as_secs_f64();
            assert!((f64::from(want)..=f64::from(want) * 1.5).contains(&wait), "{wait} of {want}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(1500));
    }
}
