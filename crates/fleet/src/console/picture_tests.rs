//! Tests of pictures: states, slow nodes, and the end of a rollout.

use serde_json::json;

use super::*;

fn set(status: serde_json::Value) -> ImageSet {
    serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
        "metadata": {"name": "web", "uid": "u", "generation": 2},
        "spec": {"images": [{"name": "app:1"}], "nodeSelector": {}},
        "status": status,
    }))
    .expect("a set")
}

fn condition(kind: &str, status: &str, reason: &str) -> serde_json::Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn a_rollout_ends_ready_or_failed() {
    let state = |observed: i64, progressing: &str, ready: &str| {
        let conditions = [condition("Progressing", "False", progressing), condition("Ready", ready, "x")];
        verdict(&set(json!({"observedGeneration": observed, "conditions": conditions})))
    };
    let failed = |reason: &str| Verdict::Failed(reason.to_owned());
    for (observed, progressing, ready, want) in [
        (2, "Complete", "True", Verdict::Ready),
        (1, "Complete", "True", Verdict::Open),
        (2, "NoNodesSelected", "True", Verdict::Ready),
        (2, "RollingOut", "False", Verdict::Open),
        (2, "Paused", "False", Verdict::Open),
        (2, "Complete", "False", Verdict::Open),
        (1, "TooManyFailures", "False", Verdict::Open),
        (2, "TooManyFailures", "False", failed("TooManyFailures")),
        (2, "ProgressDeadlineExceeded", "False", failed("ProgressDeadlineExceeded")),
        (2, "RollingBack", "False", Verdict::Open),
        (2, "RolledBack", "False", failed("RolledBack")),
        (2, "Finished", "False", failed("Finished")),
        (2, "Finished", "True", Verdict::Ready),
    ] {
        assert_eq!(state(observed, progressing, ready), want, "{observed} {progressing} {ready}");
    }
    assert_eq!(verdict(&set(json!({}))), Verdict::Open);
}

#[test]
fn nodes_in_progress_for_the_longest_time_are_first() {
    let report = |name: &str, uid: &str, phase: &str, since: &str, done: u64| -> NodeImages {
        serde_json::from_value(json!({
            "apiVersion": "imagelet.dev/v1alpha1", "kind": "NodeImages", "metadata": {"name": name},
            "status": {
                "sets": [{"name": "web", "uid": uid, "generation": 2, "phase": phase, "images": 1, "ready": 0,
                          "bytes": {"total": 100, "done": done}}],
                "images": [{"set": "web", "name": "app:1", "phase": phase, "bytes": {"total": 100, "done": done}}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "Pulling", "message": "m",
                                "lastTransitionTime": since}],
            },
        }))
        .expect("a report")
    };
    let reports = [
        report("n1", "u", "Pulling", "2026-01-01T00:00:05Z", 10),
        report("n2", "u", "Pulling", "2026-01-01T00:00:01Z", 90),
        report("n3", "u", "Pulling", "2026-01-01T00:00:05Z", 5),
        report("n4", "u", "Ready", "2026-01-01T00:00:00Z", 100),
        report("n5", "of another set", "Pulling", "2026-01-01T00:00:00Z", 0),
    ];
    let picture = RolloutPicture::of(&set(json!({})), None, Some(&reports));
    let slow = picture.slowest.expect("reports");
    let names: Vec<&str> = slow.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["n2", "n3", "n1"]);
    assert_eq!((slow[0].image.as_deref(), slow[0].done, slow[0].total), (Some("app:1"), 90, 100));
    assert_eq!(RolloutPicture::of(&set(json!({})), None, None).slowest, None);
}

#[test]
fn an_earlier_status_and_a_paused_fleet_are_shown() {
    let fleet: Fleet = serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "default"}, "spec": {"paused": true},
    }))
    .expect("a fleet");
    let resolved = json!([{"name": "app:1", "reason": "ImageNotFound", "message": "no such tag"}]);
    let old = set(json!({"observedGeneration": 1, "resolved": resolved}));
    let picture = RolloutPicture::of(&old, Some(&fleet), None);
    assert!(!picture.is_current && picture.is_paused);
    assert_eq!(picture.images[0].problem.as_deref(), Some("ImageNotFound: no such tag"));
    let picture = RolloutPicture::of(&set(json!({"observedGeneration": 2})), None, None);
    assert!(picture.is_current && !picture.is_paused);
    assert_eq!((picture.state.as_str(), picture.images.len()), ("Unknown", 1));
}
