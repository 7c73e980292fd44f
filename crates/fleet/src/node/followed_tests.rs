//! Tables of sets that a node follows.

use serde_json::json;

use super::*;
use crate::release::Rank;

fn node() -> NodeFacts {
    NodeFacts::of(&json!({"metadata": {
        "name": "edge", "uid": "node-uid", "labels": {"disk": "ssd"}, "creationTimestamp": "2026-01-01T00:00:00Z",
    }}))
    .expect("a node")
}

/// A set of generation 2 with one image; `status` is its status.
fn set(spec: &Value, status: &Value) -> ImageSet {
    let mut all = json!({"images": [{"name": "r.example/app:1"}], "nodeSelector": {}});
    for (field, value) in spec.as_object().expect("fields") {
        all[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
        "metadata": {"name": "web", "uid": "set-uid", "generation": 2}, "spec": all, "status": status,
    }))
    .expect("an ImageSet")
}

#[test]
fn sets_that_do_not_select_the_node_are_not_followed() {
    for (spec, want) in [
        (json!({"nodeSelector": {}}), true),
        (json!({"nodeSelector": {"matchLabels": {"disk": "ssd"}}}), true),
        (json!({"nodeSelector": {"matchLabels": {"disk": "hdd"}}}), false),
        (json!({"nodeSelector": {"matchLabels": {"disk": "hdd"}}, "nodeNames": ["edge"]}), true),
        (json!({"nodeSelector": null, "nodeNames": ["edge"]}), true),
        (json!({"nodeSelector": null, "nodeNames": ["other"]}), false),
    ] {
        assert_eq!(follow(&set(&spec, &json!({})), &node(), None).is_some(), want, "{spec}");
    }
}

/// A status that releases every node up to this one.
fn released(generation: i64) -> Value {
    json!({
        "observedGeneration": 2, "rolloutGeneration": generation, "released": "ffffffffffffffff",
        "newestNode": {"creationTime": "2026-01-01T00:00:00Z", "name": "edge"},
        "resolved": [{"name": "r.example/app:0", "digest": "sha256:x"}],
    })
}

#[test]
fn a_node_starts_when_the_threshold_reaches_its_rank() {
    let own = Rank::of("set-uid", 2, "edge").to_string();
    let earlier = json!({"creationTime": "2025-12-31T23:59:59Z", "name": "zone"});
    let same_second = json!({"creationTime": "2026-01-01T00:00:00Z", "name": "edgd"});
    for (field, value, want) in [
        ("released", json!("ffffffffffffffff"), true),
        ("released", json!(own), true),
        ("released", json!("0000000000000000"), false),
        ("released", Value::Null, false),
        ("released", json!("what"), false),
        ("newestNode", earlier, false),
        ("newestNode", same_second, false),
        ("newestNode", Value::Null, false),
        ("observedGeneration", json!(1), false),
        ("rolloutGeneration", Value::Null, false),
    ] {
        let mut status = released(2);
        status[field] = value;
        let followed = follow(&set(&json!({}), &status), &node(), None).expect("followed");
        assert_eq!(followed.released, want, "{status}");
    }
    let unknown = NodeFacts { created: None, ..node() };
    assert!(!follow(&set(&json!({}), &released(2)), &unknown, None).expect("followed").released);
}

#[test]
fn images_are_those_of_the_rollout_and_a_rollback_has_earlier_ones() {
    let followed = follow(&set(&json!({}), &released(1)), &node(), None).expect("followed");
    assert_eq!((followed.generation, followed.released), (1, true));
    assert_eq!(followed.images[0].name, "r.example/app:0");
    // Without a controller the images of the spec are pinned and reported, and not pulled.
    let followed = follow(&set(&json!({}), &Value::Null), &node(), None).expect("followed");
    assert_eq!((followed.generation, followed.released, &*followed.images[0].name), (2, false, "r.example/app:1"));
}

#[test]
fn status_of_an_earlier_generation_changes_nothing() {
    let status = released(2);
    let before = follow(&set(&json!({}), &status), &node(), None).expect("followed");
    let mut edited = set(&json!({"images": [{"name": "r.example/app:2"}], "pin": false}), &status);
    edited.metadata.generation = Some(3);
    let followed = follow(&edited, &node(), Some(&before)).expect("followed");
    assert_eq!((followed.generation, &followed.images, followed.released), (2, &before.images, true));
    assert!(!followed.options.pin, "options need no rollout");
    // A set that was deleted and created again is another one.
    edited.metadata.uid = Some("other-uid".to_owned());
    let followed = follow(&edited, &node(), Some(&before)).expect("followed");
    assert_eq!((followed.generation, &*followed.images[0].name, followed.released), (3, "r.example/app:2", false));
}

#[test]
fn options_have_the_defaults_of_the_api() {
    let options = follow(&set(&json!({}), &json!({})), &node(), None).expect("followed").options;
    assert_eq!((options.pin, options.release_after, options.mode), (true, 24 * 3600, Mode::Keep));
    let spec = json!({"releaseAfter": "90s", "onDelete": "Remove", "mode": "Once", "resolution": "OnNode",
        "pullSecrets": [{"name": "a"}], "access": {"namespaces": ["shop"]}});
    let options = follow(&set(&spec, &json!({})), &node(), None).expect("followed").options;
    assert_eq!((options.release_after, options.on_delete, options.mode), (90, OnDelete::Remove, Mode::Once));
    assert!(options.resolves_on_node && options.pull_secrets == ["a"] && options.namespaces == ["shop"]);
}
