//! Events of this node at the API server: [`ApiRecorder`] accepts them without ever waiting, [`EventWriter`] writes them within
//! a budget. Repeated events are counted in a series. Events that cannot be queued are dropped, and counted. Made by the binary.

mod budget;
mod object;
mod writer;

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::Mutex;
use image_manager::{Event, EventRecorder, EventRef, WallClock};
use jiff::Timestamp;
use tokio::sync::Notify;

pub use writer::EventWriter;

/// Maximum number of waiting events.
const QUEUE: usize = 1000;

/// An event that waits, with how often it happened while it did.
#[derive(Clone, Debug)]
struct Pending {
    event: Event,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// Events that wait.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pending>,
    /// Number of dropped events since the last log line about them.
    lost: u64,
}

impl Queue {
    fn push(&mut self, event: EventRef<'_>, now: Timestamp) {
        let same = |waiting: &&mut Pending| {
            let Event { object, kind, reason, message } = &waiting.event;
            object == event.object && *kind == event.kind && *reason == event.reason && message == event.message
        };
        if let Some(waiting) = self.waiting.iter_mut().rev().find(same) {
            waiting.count = waiting.count.saturating_add(1);
            waiting.last = now;
            return;
        }
        if self.waiting.len() >= QUEUE {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back(Pending { event: event.into(), count: 1, first: now, last: now });
    }
}

struct Shared {
    clock: WallClock,
    /// Guards the events that wait.
    queue: Mutex<Queue>,
    /// Notified when an event is queued.
    added: Notify,
}

/// Takes events for the API server.
#[derive(Clone)]
pub struct ApiRecorder {
    shared: Arc<Shared>,
}

impl ApiRecorder {
    /// Creates a recorder. Nothing is written until an [`EventWriter`] runs.
    #[must_use]
    pub fn new(clock: WallClock) -> Self {
        Self { shared: Arc::new(Shared { clock, queue: Mutex::default(), added: Notify::new() }) }
    }
}

impl EventRecorder for ApiRecorder {
    fn record(&self, event: EventRef<'_>) {
        let now = (self.shared.clock)();
        self.shared.queue.lock().push(event, now);
        self.shared.added.notify_one();
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
