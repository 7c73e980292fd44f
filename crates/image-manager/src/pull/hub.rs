//! [`Hub`]: tells one pull's progress to everybody who waits for it, and keeps where it stands. It decides nothing; a
//! sink that panics is told nothing more, and harms nobody else.

use parking_lot::{Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use cri_api::{ProgressSink, PullEvent};

use super::progress::{Exceeded, Limits, Progress, Seen};
use super::time::Timeline;
use crate::Metrics;

/// Fans events out. Sinks are called in order and under the hub's lock: they must be quick and must not call back.
#[derive(Clone)]
pub(super) struct Hub(Arc<Shared>);

struct Shared {
    /// Guards sinks and progress, so that everybody is told the same in the same order.
    state: Mutex<State>,
    time: Timeline,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    sinks: Vec<(u64, ProgressSink)>,
    next: u64,
    progress: Progress,
}

/// A place in a hub; what it was made for is told nothing more once it is dropped.
pub(super) struct Seat {
    hub: Hub,
    id: u64,
}

impl Hub {
    pub(super) fn new(time: Timeline, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), time, metrics }))
    }

    /// Adds a sink, which is told the present state at once.
    pub(super) fn join(&self, sink: ProgressSink) -> Seat {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        if state.progress.replay().all(|event| told(&sink, event)) {
            state.sinks.push((id, sink));
        }
        Seat { hub: self.clone(), id }
    }

    /// Begins anew: another attempt.
    pub(super) fn reset(&self) {
        self.lock().progress = Progress::default();
    }

    /// A sink for the service, which tells everybody.
    pub(super) fn sink(&self) -> ProgressSink {
        let hub = self.clone();
        ProgressSink::new(move |event| hub.tell(&event))
    }

    /// How far the pull has come.
    pub(super) fn seen(&self) -> Seen {
        self.lock().progress.seen()
    }

    /// Whether the service told that it has not begun to make the image visible.
    pub(super) fn is_before_commit(&self) -> bool {
        self.lock().progress.is_before_commit()
    }

    /// Waits until a limit is not kept.
    pub(super) async fn exceeded(&self, limits: Limits) -> Exceeded {
        loop {
            let judged = self.lock().progress.judge(limits, self.0.time.now());
            match judged {
                Ok(Duration::MAX) => std::future::pending().await,
                Ok(again) => self.0.time.until(again).await,
                Err(exceeded) => return exceeded,
            }
        }
    }

    fn tell(&self, event: &PullEvent) {
        let mut state = self.lock();
        let came = state.progress.see(event, self.0.time.now());
        if came > 0 {
            self.0.metrics.pulled_bytes(came);
        }
        state.sinks.retain(|(_, sink)| told(sink, event.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

/// Tells a sink. `false`: it panicked.
fn told(sink: &ProgressSink, event: PullEvent) -> bool {
    let told = catch_unwind(AssertUnwindSafe(|| sink.tell(event)));
    if told.is_err() {
        tracing::error!("a progress sink panicked, and is told nothing more");
    }
    told.is_ok()
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.lock().sinks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
