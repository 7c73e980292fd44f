//! Tests of events: what is posted, counted, dropped and tried again.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use image_manager::{EventType, ObjectRef};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::FakeServer;

const PODS: &str = "/apis/events.k8s.io/v1/namespaces/shop/events";

fn recorder() -> ApiRecorder {
    let seconds = AtomicI64::new(100);
    ApiRecorder::new(Arc::new(move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).expect("a time")))
}

fn pod(name: &str) -> ObjectRef {
    ObjectRef {
        namespace: "shop".into(),
        name: name.into(),
        uid: "u".into(),
        field_path: "spec.containers{web}".into(),
    }
}

fn happens(recorder: &ApiRecorder, object: &ObjectRef, message: &str) {
    recorder.record(EventRef { object, kind: EventType::Warning, reason: "BackOff", message });
}

/// Writes for this long.
async fn write(api: &FakeServer, recorder: &ApiRecorder, seconds: u64) {
    let writer = EventWriter::new(api.client(), recorder.clone(), "n".into(), Arc::new(|| 0.5));
    let stop = CancellationToken::new();
    let ends = async {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stop.cancel();
    };
    tokio::join!(writer.run(&stop), ends);
}

/// The only object below this path.
fn only(api: &FakeServer, prefix: &str) -> Value {
    let paths = api.paths(prefix);
    assert_eq!(paths.len(), 1, "{paths:?}");
    api.get(&paths[0]).expect("there")
}

#[tokio::test(start_paused = true)]
async fn an_event_is_posted_and_then_counted() {
    let (api, recorder) = (FakeServer::new(true), recorder());
    api.serve_group("events.k8s.io/v1");
    let story = async {
        happens(&recorder, &pod("web"), "again");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = only(&api, PODS);
        assert_eq!(event["series"], Value::Null);
        let regarding = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u", "fieldPath": "spec.containers{web}"});
        assert_eq!(event["regarding"], regarding);
        for (field, want) in [
            ("type", "Warning"),
            ("reason", "BackOff"),
            ("action", "BackOff"),
            ("note", "again"),
            ("reportingController", "imagelet"),
            ("reportingInstance", "n"),
            ("eventTime", "1970-01-01T00:01:40.000000Z"),
        ] {
            assert_eq!(event[field], want, "{field}");
        }
        for _ in 0..3 {
            happens(&recorder, &pod("web"), "again");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(only(&api, PODS)["series"]["count"], 4);
        happens(&recorder, &pod("web"), "something else");
    };
    tokio::join!(write(&api, &recorder, 5), story);
    assert_eq!(api.paths(PODS).len(), 2);
    assert_eq!(api.count("PATCH /events/"), 1, "those that waited together are one write");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_group_gets_core_events() {
    let (api, recorder) = (FakeServer::new(true), recorder());
    let node = ObjectRef { name: "n".into(), ..ObjectRef::default() };
    let story = async {
        happens(&recorder, &node, "x");
        tokio::time::sleep(Duration::from_secs(1)).await;
        happens(&recorder, &node, "x");
    };
    tokio::join!(write(&api, &recorder, 5), story);
    let event = only(&api, "/api/v1/namespaces/default/events");
    assert_eq!(event["involvedObject"], json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}));
    assert_eq!((&event["count"], &event["message"]), (&json!(2), &json!("x")));
    assert_eq!(event["source"], json!({"component": "imagelet", "host": "n"}));
}

#[tokio::test(start_paused = true)]
async fn who_may_not_write_the_group_writes_core_events() {
    let (api, recorder) = (FakeServer::new(true), recorder());
    api.serve_group("events.k8s.io/v1");
    api.fail("POST events.k8s.io", 403);
    happens(&recorder, &pod("web"), "x");
    happens(&recorder, &pod("web"), "y");
    write(&api, &recorder, 5).await;
    assert_eq!((api.paths(PODS).len(), api.paths("/api/v1/namespaces/shop/events").len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_the_server_and_refused_ones_are_dropped() {
    let (api, recorder) = (FakeServer::new(true), recorder());
    api.fail("GET events.k8s.io", 503);
    api.serve_group("events.k8s.io/v1");
    for code in [500, 429, 404] {
        api.fail("POST /events", code);
    }
    happens(&recorder, &pod("gone"), "x");
    happens(&recorder, &pod("web"), "x");
    write(&api, &recorder, 60).await;
    assert_eq!(only(&api, PODS)["regarding"]["name"], "web", "the first was refused for good");
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_posted_again() {
    let (api, recorder) = (FakeServer::new(true), recorder());
    api.serve_group("events.k8s.io/v1");
    let story = async {
        happens(&recorder, &pod("web"), "x");
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.fail("PATCH /events", 404);
        happens(&recorder, &pod("web"), "x");
    };
    tokio::join!(write(&api, &recorder, 5), story);
    assert_eq!(api.paths(PODS).len(), 2);
}

#[test]
fn a_queue_that_is_full_loses_the_oldest() {
    let recorder = recorder();
    for number in 0..=QUEUE {
        happens(&recorder, &pod("web"), &number.to_string());
    }
    let queue = recorder.shared.queue.lock();
    assert_eq!((queue.waiting.len(), queue.lost), (QUEUE, 1));
    assert_eq!(queue.waiting.front().map(|first| first.event.message.as_str()), Some("1"));
}

#[test]
fn long_messages_are_cut_between_letters() {
    let long = "ä".repeat(600);
    let pending = Pending {
        event: Event { object: pod("web"), kind: EventType::Normal, reason: "R", message: long },
        count: 1,
        first: Timestamp::UNIX_EPOCH,
        last: Timestamp::UNIX_EPOCH,
    };
    let note = object::event(&pending, "name", "n").note.expect("a note");
    assert!(note.len() <= 1024 && note.ends_with("ä..."), "{}", note.len());
}
