//! [`ProgressMonitor`]: forwards the progress of a pull to the requests that wait for it, counts its bytes, and checks it against the
//! speed limits. The progress itself is shared in the image service.

use std::sync::Arc;
use std::time::Duration;

use base::single_flight::Subscription;
use cri_api::{ProgressSink, PullEvent};

use super::progress::{Progress, Stalled};
use super::time::Timeline;
use crate::Metrics;

/// The progress of a pull, for the requests that wait for it.
#[derive(Clone)]
pub(super) struct ProgressMonitor {
    hub: base::single_flight::Hub<Progress>,
    time: Timeline,
    metrics: Arc<Metrics>,
}

impl base::single_flight::Progress for Progress {
    type Event = PullEvent;

    fn replay(&self) -> impl Iterator<Item = PullEvent> {
        Self::replay(self)
    }
}

impl ProgressMonitor {
    pub(super) fn new(time: Timeline, metrics: Arc<Metrics>) -> Self {
        Self { hub: base::single_flight::Hub::default(), time, metrics }
    }

    /// Returns the state of the pull, for readers that poll it.
    pub(super) fn state(&self) -> base::single_flight::Hub<Progress> {
        self.hub.clone()
    }

    /// Subscribes a sink, which gets the present state at once.
    pub(super) fn subscribe(&self, sink: ProgressSink) -> Subscription<Progress> {
        self.hub.subscribe(move |event| sink.report(event))
    }

    /// Resets the progress for another attempt.
    pub(super) fn reset(&self) {
        self.hub.with(|progress| *progress = Progress::default());
    }

    /// A sink for the service, which reports to all subscribers.
    pub(super) fn sink(&self) -> ProgressSink {
        let hub = self.clone();
        ProgressSink::new(move |event| hub.send(&event))
    }

    /// Returns true if the service reported that it has not begun to make the image visible.
    pub(super) fn is_before_commit(&self) -> bool {
        self.hub.with(|progress| progress.is_before_commit())
    }

    /// Waits until the pull has made no progress for as long as the limit; for ever without one.
    pub(super) async fn stalled(&self, limit: Option<Duration>) -> Stalled {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            match self.hub.with(|progress| progress.judge(limit, self.time.now())) {
                Ok(again) => self.time.until(again).await,
                Err(stalled) => return stalled,
            }
        }
    }

    fn send(&self, event: &PullEvent) {
        let came = self.hub.send(event, |progress, event| progress.see(event, self.time.now()));
        if came > 0 {
            self.metrics.pulled_bytes(came);
        }
    }
}

#[cfg(test)]
#[path = "monitor_tests.rs"]
mod tests;
