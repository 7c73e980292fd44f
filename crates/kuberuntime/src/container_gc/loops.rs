//! The loop of [`ContainerGc`]: a round at once, then on its timer, and when somebody asks for one. It takes no input, and
//! an error of one turn does not end it.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::collector::ContainerGc;
use super::select::Scope;

impl ContainerGc {
    /// Runs the loop until `stop`. A round that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut turns = interval(self.options.interval.max(Duration::from_millis(1)));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = turns.tick() => {}
                () = self.nudge.notified() => {}
            }
            self.collect_and_tell(Scope::Policy).await;
        }
    }
}
