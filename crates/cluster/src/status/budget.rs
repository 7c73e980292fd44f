//! [`WriteBudget`]: how many writes there may be in a time. Called before each write of a status.

use std::time::Duration;

use tokio::time::Instant;

/// Writes that may be made at once.
const BURST: u32 = 40;
/// After that, one in this time.
const EACH: Duration = Duration::from_millis(50);

/// The remaining budget of writes.
#[derive(Debug)]
pub(super) struct WriteBudget {
    /// Time at which a whole burst is available again.
    full_at: Instant,
}

impl WriteBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Waits until there may be another write.
    pub(super) async fn take(&mut self) {
        let now = Instant::now();
        self.full_at = self.full_at.max(now) + EACH;
        let wait = self.full_at.saturating_duration_since(now + EACH * BURST);
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_is_paced() {
        let begin = Instant::now();
        let mut budget = WriteBudget::new(begin);
        for _ in 0..BURST {
            budget.take().await;
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            budget.take().await;
        }
        assert!((Duration::from_millis(950)..=Duration::from_millis(1050)).contains(&begin.elapsed()));
    }
}
