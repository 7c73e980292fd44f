//! Events of the controller: one for each set and transition, never one for each node of a rollout. Called by [`super::pass`] and
//! [`super::taints`].

use cluster::ClusterClient;
use cluster::client::text;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::options::MANAGER;
use crate::api::ImageSet;

/// Namespace of events about objects without a namespace. The API server refuses another one.
const NAMESPACE: &str = "default";
/// Longest note, in characters.
const MAX_NOTE: usize = 1000;

/// An event to write.
pub(super) struct Notice<'a> {
    pub(super) about: ObjectReference,
    pub(super) is_warning: bool,
    pub(super) reason: &'a str,
    pub(super) note: &'a str,
}

/// Returns the reference of a set.
pub(super) fn about_set(set: &ImageSet) -> ObjectReference {
    ObjectReference { namespace: Some(NAMESPACE.to_owned()), ..set.object_ref(&()) }
}

/// Returns the reference of a node. Its UID is its name, as in events of the kubelet, so that `kubectl describe node` finds it.
pub(super) fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Writes an event. A failure is logged and has no other consequence.
pub(super) async fn publish(client: &ClusterClient, identity: &str, notice: Notice<'_>) {
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(identity.to_owned()) };
    let event = Event {
        type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
        reason: notice.reason.to_owned(),
        note: Some(notice.note.chars().take(MAX_NOTE).collect()),
        action: notice.reason.to_owned(),
        secondary: None,
    };
    let recorder = Recorder::new(client.current(), reporter);
    if let Err(error) = recorder.publish(&event, &notice.about).await {
        tracing::warn!(error = text(&error), reason = notice.reason, "an event was not written");
    }
}
