//! [`EventLog`]: the last events of this node with their times. An event that repeats is counted, not stored again, as in
//! Kubernetes. Wakes readers that wait for more. All event recorders of the node write to it; the admin endpoint reads it.

use base::lock::Mutex;
use std::collections::VecDeque;

use image_manager::{Event, EventRecorder, EventRef, WallClock};
use jiff::Timestamp;
use tokio::sync::watch;

/// An event with the count and times of its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedEvent {
    /// Sequence number of the last occurrence.
    pub(crate) number: u64,
    /// Sequence number of the first occurrence, by which clients identify the event.
    pub(crate) id: u64,
    pub(crate) event: Event,
    pub(crate) count: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

/// The last events of the node.
pub struct EventLog {
    capacity: usize,
    clock: WallClock,
    /// Guards the events, in the order of their last times.
    entries: Mutex<VecDeque<RecordedEvent>>,
    /// The number of the last event.
    last: watch::Sender<u64>,
}

impl EventLog {
    /// Keeps at most `capacity` events; the oldest ones are dropped first.
    pub fn new(capacity: usize, clock: WallClock) -> Self {
        Self { capacity, clock, entries: Mutex::default(), last: watch::Sender::new(0) }
    }

    /// Returns the events with higher numbers, in order.
    pub(crate) fn since(&self, number: u64) -> Vec<RecordedEvent> {
        let entries = self.entries.lock();
        let first = entries.partition_point(|entry| entry.number <= number);
        entries.range(first..).cloned().collect()
    }

    /// Returns the number of the last event.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Returns when there is an event with a higher number.
    pub async fn after(&self, number: u64) {
        // This log owns the sender, so the channel is open.
        let _ = self.last.subscribe().wait_for(|last| *last > number).await;
    }
}

impl EventRecorder for EventLog {
    fn record(&self, event: EventRef<'_>) {
        let now = (self.clock)();
        let mut entries = self.entries.lock();
        let number = *self.last.borrow() + 1;
        // A repeated event mostly follows soon, so search from the end.
        let known = entries.iter().rposition(|entry| {
            let Event { object, kind, reason, message } = &entry.event;
            object == event.object && *kind == event.kind && *reason == event.reason && message == event.message
        });
        match known.and_then(|at| entries.remove(at)) {
            Some(mut entry) => {
                (entry.number, entry.count, entry.last) = (number, entry.count + 1, now);
                entries.push_back(entry);
            }
            None => {
                if entries.len() >= self.capacity {
                    entries.pop_front();
                }
                let event = event.into();
                entries.push_back(RecordedEvent { number, id: number, event, count: 1, first: now, last: now });
            }
        }
        drop(entries);
        self.last.send_replace(number);
    }
}

/// Writes events to the log at level debug: a command in the foreground reports states itself.
pub struct DebugRecorder;

impl EventRecorder for DebugRecorder {
    fn record(&self, event: EventRef<'_>) {
        let EventRef { object, reason, message, .. } = event;
        tracing::debug!(pod = object.pod_title(), container = object.container_name(), reason, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use image_manager::{EventType, ObjectRef};

    use super::*;

    fn log(capacity: usize) -> EventLog {
        let seconds = AtomicI64::new(0);
        let clock = move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).expect("a time");
        EventLog::new(capacity, Arc::new(clock))
    }

    fn happens(log: &EventLog, message: &str) {
        let object = ObjectRef { name: "web".into(), ..ObjectRef::default() };
        log.record(EventRef { object: &object, kind: EventType::Normal, reason: "Pulled", message });
    }

    fn shown(entries: &[RecordedEvent]) -> Vec<(u64, u64, u64, &str, i64, i64)> {
        let row = |e: &'_ RecordedEvent| (e.number, e.id, e.count, e.first.as_second(), e.last.as_second());
        entries
            .iter()
            .map(|e| {
                let (number, id, count, first, last) = row(e);
                (number, id, count, e.event.message.as_str(), first, last)
            })
            .collect()
    }

    #[test]
    fn what_happens_again_is_counted() {
        let log = log(2);
        for message in ["a", "b", "a", "a"] {
            happens(&log, message);
        }
        assert_eq!(shown(&log.since(0)), [(2, 2, 1, "b", 1, 1), (4, 1, 3, "a", 0, 3)]);
        assert_eq!(shown(&log.since(2)), [(4, 1, 3, "a", 0, 3)]);
        assert_eq!((log.since(4).len(), log.last()), (0, 4));
        happens(&log, "c");
        assert_eq!(shown(&log.since(0)), [(4, 1, 3, "a", 0, 3), (5, 5, 1, "c", 4, 4)]);
    }

    #[tokio::test]
    async fn waiters_are_notified() {
        let log = log(8);
        happens(&log, "a");
        log.after(0).await;
        let waits = log.after(1);
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        happens(&log, "b");
        waits.await;
        assert_eq!(log.since(1).len(), 1);
    }
}
