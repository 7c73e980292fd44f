//! The loops of [`ImageGcManager`]: detection, the image cache, collection and disk pressure, each at once,
//! then on its timer, and when somebody asks for it. They take no input, and an error of one turn does not end them.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::collector::ImageGcManager;
use super::report::chain;

impl ImageGcManager {
    /// Runs the loops until `stop`. A turn that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        tokio::join!(self.detecting(stop), self.caching(stop), self.collecting(stop), self.pressing(stop));
    }

    /// Only looks what is in use until `stop`, where somebody else collects: what is known of uses is kept all the same.
    pub async fn watch(&self, stop: &CancellationToken) {
        self.detecting(stop).await;
    }

    async fn detecting(&self, stop: &CancellationToken) {
        let mut turns = turns(self.options.intervals.detect);
        while turn(&mut turns, Some(&self.nudge_detect), stop).await {
            if let Err(error) = self.detect().await {
                tracing::warn!("failed to monitor images: {}", chain(&error));
            }
        }
    }

    async fn caching(&self, stop: &CancellationToken) {
        let mut turns = turns(self.options.intervals.cache);
        while turn(&mut turns, Some(&self.nudge_cache), stop).await {
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
        while turn(&mut turns, Some(&self.nudge), stop).await {
            let result = self.garbage_collect().await;
            self.tell_of(&result).await;
            if result.is_ok_and(|report| !report.removed.is_empty()) {
                self.nudge_cache.notify_one();
            }
        }
    }
}

pub(super) fn turns(period: Duration) -> tokio::time::Interval {
    let mut turns = interval(period.max(Duration::from_millis(1)));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns
}

/// Waits for the next turn, or for a nudge; `false`: there is none any more.
pub(super) async fn turn(turns: &mut tokio::time::Interval, nudge: Option<&Notify>, stop: &CancellationToken) -> bool {
    let nudged = async {
        match nudge {
            Some(nudge) => nudge.notified().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        _ = turns.tick() => true,
        () = nudged => true,
    }
}
