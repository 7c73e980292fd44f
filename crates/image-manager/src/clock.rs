//! The clocks: [`Clock`] for differences of time, [`WallClock`] for the time of day. The binary hands them in.

use std::sync::Arc;

use tokio::time::Instant;

/// Returns the time of a monotonic clock. Only differences are used.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Returns the time of day.
pub type WallClock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;
