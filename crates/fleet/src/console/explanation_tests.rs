//! Tests of explanations: a table of states of one image on one node, with the answer and the failed steps of each.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-02T00:00:00Z";

fn node(role: &str) -> NodeFacts {
    NodeFacts {
        name: "n1".to_owned(),
        labels: [("role".to_owned(), role.to_owned())].into(),
        created: Some("2026-01-01T00:00:00Z".parse().expect("a time")),
    }
}

/// A set whose controller released every node, changed by `change`.
fn set(change: impl FnOnce(&mut Value)) -> ImageSet {
    let mut set = json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
        "metadata": {"name": "web", "uid": "u", "generation": 3},
        "spec": {"images": [{"name": "registry.example/app:1"}], "nodeSelector": {"matchLabels": {"role": "web"}},
                 "rollout": {"maxConcurrent": 1}},
        "status": {
            "observedGeneration": 3, "rolloutGeneration": 3, "released": "ffffffffffffffff",
            "newestNode": {"creationTime": NOW, "name": "n9"},
            "resolved": [{"name": "registry.example/app:1", "digest": "sha256:1"}],
            "nodes": {"desired": 9, "waiting": 7, "pulling": 1, "ready": 0, "failed": 1, "lost": 0},
            "conditions": [{"type": "Progressing", "status": "True", "reason": "RollingOut", "message": "m",
                            "lastTransitionTime": NOW}],
        },
    });
    change(&mut set);
    serde_json::from_value(set).expect("a set")
}

/// A report in which the image is such.
fn report(generation: i64, time: &str, image: &Value) -> NodeImages {
    let mut row = json!({"set": "web", "name": "registry.example/app:1", "pinned": true});
    row.as_object_mut().expect("an object").extend(image.as_object().expect("an object").clone());
    serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "NodeImages", "metadata": {"name": "n1"},
        "status": {
            "reportTime": time, "agentVersion": "0.3.0", "images": [row],
            "sets": [{"name": "web", "uid": "u", "generation": generation, "phase": "Pulling", "images": 1, "ready": 0}],
        },
    }))
    .expect("a report")
}

fn why(node: &NodeFacts, image: &str, sets: &[ImageSet], report: Report<'_>) -> Explanation {
    let now = NOW.parse().expect("a time");
    explain(&WhyFacts { node, image, sets, fleet: None, report, now, human: |seconds| format!("{seconds}s") })
}

/// Returns the names of the steps that keep the image from the node.
fn failed(explanation: &Explanation) -> Vec<&'static str> {
    let steps = explanation.sets.iter().flat_map(|set| &set.steps).chain(&explanation.steps);
    steps.filter(|step| !step.ok).map(|step| step.step).collect()
}

#[test]
fn the_report_of_the_node_answers() {
    const APP: &str = "registry.example/app:1";
    let soon = "2026-01-02T00:01:00Z";
    let failure =
        json!({"phase": "Failed", "reason": "ImageNotFound", "message": "no such tag", "attempts": 3, "retryAt": soon});
    for (image, time, want, steps) in [
        (
            json!({"phase": "Ready"}),
            "2026-01-01T23:59:30Z",
            "n1 has registry.example/app:1: it reported so 30s ago.",
            vec![],
        ),
        (
            json!({"phase": "Pulling", "bytes": {"total": 2000, "done": 500}, "attempts": 1}),
            "2026-01-01T23:59:30Z",
            "n1 is pulling registry.example/app:1: 500B of 2kB.",
            vec![],
        ),
        (
            failure,
            "2026-01-01T23:59:30Z",
            "n1 cannot pull registry.example/app:1: ImageNotFound: no such tag; the next attempt is in 60s.",
            vec!["image"],
        ),
        (
            json!({"phase": "Gone"}),
            "2026-01-01T23:59:30Z",
            "registry.example/app:1 was on n1 and disappeared; the node pulls it again.",
            vec!["image"],
        ),
        (
            json!({"phase": "Waiting"}),
            "2026-01-01T22:00:00Z",
            "n1 may start, but has not reported for 7200s.",
            vec!["reported"],
        ),
        (
            json!({"phase": "Waiting"}),
            "2026-01-01T23:59:30Z",
            "n1 may start; its next report will have registry.example/app:1.",
            vec![],
        ),
    ] {
        let read = report(3, time, &image);
        let explanation = why(&node("web"), APP, &[set(|_| {})], Report::Read(&read));
        assert_eq!((explanation.answer.as_str(), failed(&explanation)), (want, steps), "{image}");
    }
    // A report about another generation says nothing about this one.
    let old = report(2, "2026-01-01T23:59:30Z", &json!({"phase": "Ready"}));
    let explanation = why(&node("web"), APP, &[set(|_| {})], Report::Read(&old));
    assert_eq!(explanation.answer, "n1 may start; its next report will have registry.example/app:1.");
}

#[test]
fn without_a_report_the_set_answers() {
    let app = "registry.example/app:1";
    let stop = |set: &mut Value| set["status"]["released"] = json!("0000000000000000");
    let cases: [(&str, ImageSet, &str, &[&str]); 9] = [
        (
            "no agent",
            set(|_| {}),
            "n1 may start, but has never reported: no agent that follows ImageSets runs there.",
            &["reported"],
        ),
        (
            "another label",
            set(|set| set["spec"]["nodeSelector"] = json!({"matchLabels": {"role": "db"}})),
            "web has registry.example/app:1, but does not select n1: role=db is required, and the node has role=web.",
            &["selected", "reported"],
        ),
        (
            "an old status",
            set(|set| set["metadata"]["generation"] = json!(4)),
            "the controller has not handled the last change of web.",
            &["resolved", "reported"],
        ),
        (
            "no digest",
            set(|set| {
                set["status"]["resolved"] =
                    json!([{"name": "registry.example/app:1", "reason": "ImageNotFound", "message": "no tag"}]);
            }),
            "registry.example/app:1 has no digest, so no node pulls it: ImageNotFound: no tag.",
            &["resolved", "reported"],
        ),
        (
            "above the threshold",
            set(stop),
            "n1 waits for its turn in web: 1 nodes are in progress and 7 wait, maxConcurrent is 1.",
            &["released", "reported"],
        ),
        (
            "joined later",
            set(|set| set["status"]["newestNode"]["creationTime"] = json!("2025-01-01T00:00:00Z")),
            "n1 waits for its turn in web: 1 nodes are in progress and 7 wait, maxConcurrent is 1.",
            &["released", "reported"],
        ),
        (
            "paused",
            set(|set| {
                stop(set);
                set["spec"]["rollout"]["paused"] = json!(true);
            }),
            "n1 waits for its turn in web: the set is paused.",
            &["released", "reported"],
        ),
        (
            "too many failures",
            set(|set| {
                stop(set);
                set["status"]["conditions"][0]["reason"] = json!("TooManyFailures");
            }),
            "n1 waits for its turn in web: 1 failed or lost, more than maxFailed permits.",
            &["released", "reported"],
        ),
        (
            "resolved on the node",
            set(|set| {
                set["spec"]["resolution"] = json!("OnNode");
                set["status"]["resolved"] = json!([{"name": "registry.example/app:1"}]);
            }),
            "n1 may start, but has never reported: no agent that follows ImageSets runs there.",
            &["reported"],
        ),
    ];
    for (name, set, want, steps) in cases {
        let explanation = why(&node("web"), app, &[set], Report::Missing);
        assert_eq!((explanation.answer.as_str(), failed(&explanation)), (want, steps.to_vec()), "{name}");
        assert!(explanation.next.is_some(), "{name}");
    }
    let forbidden = why(&node("web"), app, &[set(|_| {})], Report::Forbidden);
    assert_eq!(forbidden.answer, "n1 may start, but you may not read its report.");
}

#[test]
fn an_image_is_found_by_every_spelling_and_an_unknown_one_has_a_suggestion() {
    let sets = [set(|set| set["spec"]["images"] = json!([{"name": "busybox"}]))];
    for spelling in ["busybox", "busybox:latest", "docker.io/library/busybox:latest"] {
        assert_eq!(why(&node("web"), spelling, &sets, Report::Missing).sets.len(), 1, "{spelling}");
    }
    let unknown = why(&node("web"), "busybx", &sets, Report::Missing);
    assert_eq!(
        (unknown.answer.as_str(), unknown.next.as_deref()),
        ("no set names busybx.", Some("did you mean busybox?"))
    );
    let empty = why(&node("web"), "busybox", &[], Report::Missing);
    assert!(empty.next.is_some_and(|next| next.contains("there are no sets")));
}

#[test]
fn of_several_sets_the_one_that_is_furthest_answers() {
    let other = set(|set| {
        set["metadata"]["name"] = json!("a-first");
        set["spec"]["nodeSelector"] = json!({"matchLabels": {"role": "db"}});
    });
    let read = report(3, "2026-01-01T23:59:30Z", &json!({"phase": "Ready"}));
    let explanation = why(&node("web"), "registry.example/app:1", &[other, set(|_| {})], Report::Read(&read));
    let names: Vec<&str> = explanation.sets.iter().map(|set| set.set.as_str()).collect();
    assert_eq!(names, ["web", "a-first"]);
    assert!(explanation.answer.starts_with("n1 has registry.example/app:1"), "{}", explanation.answer);
}
