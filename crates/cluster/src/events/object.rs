//! Events as objects of the API: of `events.k8s.io/v1`, or of the core group where the server has no other. Pure. Called by
//! [`super::EventWriter`].

use image_manager::{Event, ObjectRef};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde_json::{Value, json};

use super::Pending;

/// Longest note, in bytes.
const MAX_NOTE: usize = 1024;
/// The component that reports.
const COMPONENT: &str = "imagelet";

/// Returns the namespace of an event about this object: its own, and that of objects without one.
pub(super) fn namespace(object: &ObjectRef) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

/// Returns the object of an event. One without a namespace is a Node, which has its name for a UID, as in the kubelet's events.
fn reference(object: &ObjectRef) -> core::ObjectReference {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let is_node = object.namespace.is_empty();
    core::ObjectReference {
        api_version: some("v1"),
        kind: some(if is_node { "Node" } else { "Pod" }),
        namespace: some(&object.namespace),
        name: some(&object.name),
        uid: some(if is_node { &object.name } else { &object.uid }),
        field_path: some(&object.field_path),
        resource_version: None,
    }
}

fn metadata(event: &Event, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace(&event.object).to_owned()),
        ..ObjectMeta::default()
    }
}

/// Returns the message, cut if it is too long.
fn note(message: &str) -> String {
    if message.len() <= MAX_NOTE {
        return message.to_owned();
    }
    let most = MAX_NOTE - "...".len();
    let end = (0..=most).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    format!("{}...", &message[..end])
}

/// Returns the name of an event: that of its object, and a unique number.
pub(super) fn name(pending: &Pending) -> String {
    let object = &pending.event.object.name;
    format!("{object}.{:x}", pending.first.as_nanosecond())
}

/// Returns the event in `events.k8s.io/v1`.
pub(super) fn event(pending: &Pending, name: &str, node: &str) -> events::Event {
    let Pending { event, count, first, last } = pending;
    events::Event {
        metadata: metadata(event, name),
        event_time: Some(MicroTime(*first)),
        series: (*count > 1).then_some(events::EventSeries { count: *count, last_observed_time: MicroTime(*last) }),
        reporting_controller: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        action: Some(event.reason.to_owned()),
        reason: Some(event.reason.to_owned()),
        regarding: Some(reference(&event.object)),
        note: Some(note(&event.message)),
        type_: Some(event.kind.as_str().to_owned()),
        ..events::Event::default()
    }
}

/// Returns the event in the core group.
pub(super) fn core_event(pending: &Pending, name: &str, node: &str) -> core::Event {
    let Pending { event, count, first, last } = pending;
    core::Event {
        metadata: metadata(event, name),
        involved_object: reference(&event.object),
        reason: Some(event.reason.to_owned()),
        message: Some(note(&event.message)),
        type_: Some(event.kind.as_str().to_owned()),
        count: Some(*count),
        first_timestamp: Some(Time(*first)),
        last_timestamp: Some(Time(*last)),
        source: Some(core::EventSource { component: Some(COMPONENT.to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..core::Event::default()
    }
}

/// Returns the patch of a repeated event; `count` is the number of all occurrences.
pub(super) fn again(count: i32, pending: &Pending, in_core: bool) -> Value {
    if in_core {
        json!({"count": count, "lastTimestamp": Time(pending.last), "message": note(&pending.event.message)})
    } else {
        json!({"series": {"count": count, "lastObservedTime": MicroTime(pending.last)}})
    }
}
