//! [`Turns`]: timing of the loops of garbage collection, of images in this crate and of leftovers of pods in others: each
//! runs at once, then on its timer, and when it is nudged. It does not know the work.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The turns of one loop.
#[derive(Debug)]
pub struct Turns<'a> {
    interval: Interval,
    nudge: Option<&'a Notify>,
    stop: &'a CancellationToken,
}

impl<'a> Turns<'a> {
    /// Turns every `period`, and on each nudge, until `stop`.
    #[must_use]
    pub fn new(period: Duration, nudge: Option<&'a Notify>, stop: &'a CancellationToken) -> Self {
        let mut interval = interval(period.max(Duration::from_millis(1)));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { interval, nudge, stop }
    }

    /// Waits for the next turn. Returns false after the stop.
    pub async fn next(&mut self) -> bool {
        let nudged = async {
            match self.nudge {
                Some(nudge) => nudge.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            _ = self.interval.tick() => true,
            () = nudged => true,
        }
    }
}
