//! [`Bucket`]: a token bucket, initially full. A token may be taken in advance if the wait for it is short enough; the
//! length of the wait is known beforehand. Pure: the caller passes the time, and
//! [`Throttle`](super::throttle::Throttle) waits.

use std::time::Duration;

/// A token bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens per second, above 0.
    rate: f64,
    /// How many it holds.
    burst: f64,
    /// Tokens as of `at`; below 0 where tokens were taken in advance.
    tokens: f64,
    /// Time by the clock of the bucket's owner.
    at: Duration,
    /// When the last token that was taken in advance is there.
    last: Duration,
}

/// A token that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// When it is there: not before this the taker may go on.
    pub(super) ready: Duration,
}

impl Bucket {
    /// A bucket of `rate` tokens per second. `None`: with a rate of 0 (or below, or none at all) nothing is limited.
    pub(super) fn new(rate: f64, burst: u32) -> Option<Self> {
        let burst = f64::from(burst);
        (rate > 0.0).then_some(Self { rate, burst, tokens: burst, at: Duration::ZERO, last: Duration::ZERO })
    }

    /// The same bucket with another rate and size: what was taken out of it is missing still.
    pub(super) fn with_rate_of(mut self, other: Self, now: Duration) -> Self {
        self.fill(now);
        Self { rate: other.rate, burst: other.burst, tokens: self.tokens.min(other.burst), ..self }
    }

    /// Takes a token that is there after `patience` at the latest. `None`: there will be none by then. A bucket that
    /// holds nothing never gives any.
    pub(super) fn take(&mut self, now: Duration, patience: Duration) -> Option<Token> {
        if self.burst < 1.0 {
            return None;
        }
        self.fill(now);
        let missing = (1.0 - self.tokens).max(0.0);
        // A rate so small that the wait is no duration is a wait for ever.
        let wait = Duration::try_from_secs_f64(missing / self.rate).ok()?;
        if wait > patience {
            return None;
        }
        let ready = now.checked_add(wait)?;
        self.tokens -= 1.0;
        self.last = self.last.max(ready);
        Some(Token { ready })
    }

    /// Returns a token that was not used. Where later tokens were taken, only the part that they leave of it is returned:
    /// their takers still wait for their times, and a new taker in between would exceed the rate.
    pub(super) fn give_back(&mut self, token: Token, now: Duration) {
        if token.ready <= now {
            return;
        }
        self.fill(now);
        let behind = self.rate * self.last.saturating_sub(token.ready).as_secs_f64();
        let left = 1.0 - behind;
        if left > 0.0 {
            self.tokens = (self.tokens + left).min(self.burst);
        }
        if token.ready == self.last {
            let step = Duration::try_from_secs_f64(self.rate.recip()).unwrap_or(Duration::MAX);
            self.last = self.last.saturating_sub(step).max(now);
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
