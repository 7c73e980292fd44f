//! The loops of [`ImageGcManager`]: detection, the image cache, collection and disk pressure, each at once, then on its timer; collection
//! also when somebody asks for it. They take no input, and an error of one turn does not end them.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::collector::ImageGcManager;
use super::report::chain;

impl ImageGcManager {
    /// Runs the loops until `stop`. A turn that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        tokio::join!(self.detecting(stop), self.caching(stop), self.collecting(stop), self.pressing(stop));
    }

    async fn detecting(&self, stop: &CancellationToken) {
        let mut turns = turns(self.options.intervals.detect);
        while turn(&mut turns, stop).await {
            if let Err(error) = self.detect().await {
                tracing::warn!("failed to monitor images: {}", chain(&error));
            }
        }
    }

    async fn caching(&self, stop: &CancellationToken) {
        let mut turns = turns(self.options.intervals.cache);
        while turn(&mut turns, stop).await {
            if let Err(error) = self.refresh_cache().await {
                tracing::warn!("failed to update image list: {}", chain(&error));
            }
        }
    }

    async fn collecting(&self, stop: &CancellationToken) {
        if self.options.policy.is_off() {
            tracing::info!("image garbage collection is off: the high threshold is 100, and there is no maximum age");
            return;
        }
        let mut turns = turns(self.options.intervals.collect);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = turns.tick() => {}
                () = self.nudge.notified() => {}
            }
            let result = self.garbage_collect().await;
            self.tell_of(&result).await;
        }
    }
}

pub(super) fn turns(period: Duration) -> tokio::time::Interval {
    let mut turns = interval(period.max(Duration::from_millis(1)));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns
}

/// Waits for the next turn; `false`: there is none any more.
pub(super) async fn turn(turns: &mut tokio::time::Interval, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        _ = turns.tick() => true,
    }
}
