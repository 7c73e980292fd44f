//! [`EventRecorder`] and its two recorders: the log, and a ring of the last events. Which outcome makes which event is
//! decided in `outcome`.

use base::lock::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::ObjectRef;

/// Type of an event; Kubernetes has these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Information about a normal operation.
    Normal,
    /// Something failed.
    Warning,
}

impl EventType {
    /// The name, as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event as Kubernetes has them, but for its time and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The pod, or the part of it, that the event is about.
    pub object: ObjectRef,
    /// Normal or warning.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Fixed CamelCase reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Event {
    /// Becomes `event` in the memory that it has.
    fn take(&mut self, EventRef { object, kind, reason, message }: EventRef<'_>) {
        let ObjectRef { namespace, name, uid, field_path } = &mut self.object;
        object.namespace.clone_into(namespace);
        object.name.clone_into(name);
        object.uid.clone_into(uid);
        object.field_path.clone_into(field_path);
        message.clone_into(&mut self.message);
        self.kind = kind;
        self.reason = reason;
    }
}

/// An event, lent to a recorder, which copies what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// The pod, or the part of it, that the event is about.
    pub object: &'a ObjectRef,
    /// Normal or warning.
    pub kind: EventType,
    /// Fixed CamelCase reason.
    pub reason: &'static str,
    /// For people.
    pub message: &'a str,
}

impl From<EventRef<'_>> for Event {
    fn from(EventRef { object, kind, reason, message }: EventRef<'_>) -> Self {
        Self { object: object.clone(), kind, reason, message: message.to_owned() }
    }
}

/// Where events go. Called on the way of a request: it must be quick and cannot fail.
pub trait EventRecorder: Send + Sync + 'static {
    /// Records one event.
    fn record(&self, event: EventRef<'_>);
}

/// Writes events to the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRecorder;

impl EventRecorder for LogRecorder {
    fn record(&self, event: EventRef<'_>) {
        let EventRef { object, kind, reason, message } = event;
        let (pod, container) = (object.pod_title(), object.container_name());
        match kind {
            // The event of the pull, which was recorded before, has the message.
            EventType::Warning if is_reason_alone(message) => tracing::debug!(pod, container, reason, "{message}"),
            EventType::Normal => tracing::info!(pod, container, reason, "{message}"),
            EventType::Warning => tracing::warn!(pod, container, reason, "{message}"),
        }
    }
}

/// Returns true for the second event that the kubelet records about a failed pull: `Error: ErrImagePull`.
fn is_reason_alone(message: &str) -> bool {
    message.strip_prefix("Error: ").is_some_and(|reason| reason.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// An event and its number since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumberedEvent {
    /// Counts from 1.
    pub number: u64,
    /// The event itself; in JSON its fields are next to the number.
    #[serde(flatten)]
    pub event: Event,
}

/// Keeps the last events.
#[derive(Debug)]
pub struct RingRecorder {
    capacity: usize,
    /// Guards the events, oldest first.
    events: Mutex<EventRing>,
}

#[derive(Debug, Default)]
struct EventRing {
    last: VecDeque<NumberedEvent>,
    recorded: u64,
}

impl RingRecorder {
    /// Keeps at most `capacity` events; the oldest go first.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, events: Mutex::default() }
    }

    /// The events that are kept, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<NumberedEvent> {
        self.since(0)
    }

    /// Returns the events with a higher number. A gap after `number` shows how many were lost.
    #[must_use]
    pub fn since(&self, number: u64) -> Vec<NumberedEvent> {
        let ring = self.events.lock();
        ring.last.iter().filter(|event| event.number > number).cloned().collect()
    }
}

impl EventRecorder for RingRecorder {
    fn record(&self, event: EventRef<'_>) {
        let mut ring = self.events.lock();
        ring.recorded += 1;
        let number = ring.recorded;
        if ring.last.len() < self.capacity {
            ring.last.push_back(NumberedEvent { number, event: event.into() });
        } else if !ring.last.is_empty() {
            // A full ring allocates nothing: the oldest event's memory is written over.
            ring.last.rotate_left(1);
            let last = ring.last.back_mut().expect("it is not empty");
            last.number = number;
            last.event.take(event);
        }
    }
}

/// Several recorders, each of which gets every event.
#[derive(Clone, Default)]
pub struct Recorders(pub Vec<Arc<dyn EventRecorder>>);

impl EventRecorder for Recorders {
    fn record(&self, event: EventRef<'_>) {
        for recorder in &self.0 {
            recorder.record(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PodRef;

    fn event(message: &str) -> Event {
        let pod = PodRef { namespace: "shop".into(), name: "web-0".into(), uid: "u1".into(), ..PodRef::default() };
        Event {
            object: ObjectRef::container(&pod, "nginx"),
            kind: EventType::Normal,
            reason: "Pulled",
            message: message.into(),
        }
    }

    #[test]
    fn events_with_a_reason_alone_are_details_of_the_log() {
        for (message, alone) in [
            ("Error: ErrImagePull", true),
            ("Error: ImagePullBackOff", true),
            ("Error: exec: no such file", false),
            ("ErrImagePull", false),
            ("Failed to pull image \"a\": not found", false),
        ] {
            assert_eq!(is_reason_alone(message), alone, "{message}");
        }
    }

    #[test]
    fn ring_keeps_the_last_and_counts_all() {
        let ring = Arc::new(RingRecorder::new(2));
        let recorders = Recorders(vec![Arc::clone(&ring) as Arc<dyn EventRecorder>, Arc::new(LogRecorder)]);
        for message in ["a", "b", "c"] {
            let event = event(message);
            let Event { object, kind, reason, message } = &event;
            recorders.record(EventRef { object, kind: *kind, reason, message });
            assert_eq!(ring.events().last().map(|last| last.event.clone()), Some(event));
        }
        let kept: Vec<(u64, String)> = ring.events().into_iter().map(|e| (e.number, e.event.message)).collect();
        assert_eq!(kept, [(2, "b".to_owned()), (3, "c".to_owned())]);
        assert_eq!(ring.since(2).len(), 1);
        assert_eq!(ring.since(3).len(), 0);
    }

    #[test]
    fn objects_and_events_are_written_as_in_kubernetes() {
        assert_eq!(event("x").object.to_string(), "shop/web-0 spec.containers{nginx}");
        let json = serde_json::to_value(NumberedEvent { number: 1, event: event("x") }).expect("plain data");
        assert_eq!(json["type"], "Normal");
        assert_eq!(json["object"]["fieldPath"], "spec.containers{nginx}");
        let pod = PodRef { namespace: "shop".into(), name: "web-0".into(), ..PodRef::default() };
        assert_eq!(ObjectRef::pod(&pod).to_string(), "shop/web-0");
        assert_eq!(ObjectRef::init_container(&pod, "db").field_path, "spec.initContainers{db}");
    }
}
