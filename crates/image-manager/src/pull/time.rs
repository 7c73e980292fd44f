//! [`Timeline`]: the clock of the puller as durations since its start, which are passed to its pure parts.

use std::time::Duration;

use tokio::time::Instant;

use crate::Clock;

/// Counts from when it was made.
#[derive(Clone)]
pub(super) struct Timeline {
    clock: Clock,
    start: Instant,
}

impl Timeline {
    pub(super) fn new(clock: Clock) -> Self {
        let start = clock();
        Self { clock, start }
    }

    pub(super) fn now(&self) -> Duration {
        (self.clock)().saturating_duration_since(self.start)
    }

    /// Waits until it is `at`.
    pub(super) async fn until(&self, at: Duration) {
        tokio::time::sleep(at.saturating_sub(self.now())).await;
    }
}
