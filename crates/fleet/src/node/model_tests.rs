//! The model from event to event.

use serde_json::json;

use super::super::fixtures::digest;
use super::*;

/// A released set of a generation.
fn set(name: &str, generation: i64, images: &[&str], options: &serde_json::Value) -> ImageSet {
    let listed: Vec<_> = images.iter().map(|image| json!({"name": image})).collect();
    let resolved = images.iter().map(|image| json!({"name": image, "digest": digest(image).to_string()}));
    let mut spec = json!({"images": listed, "nodeSelector": {}, "releaseAfter": "1h"});
    for (field, value) in options.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "generation": generation}, "spec": spec,
        "status": {
            "observedGeneration": generation, "rolloutGeneration": generation, "released": "ffffffffffffffff",
            "newestNode": {"creationTime": "2026-01-01T00:00:00Z", "name": "edge"},
            "resolved": resolved.collect::<Vec<_>>(),
        },
    }))
    .expect("an ImageSet")
}

fn model() -> Model {
    let mut model = Model::default();
    let metadata = json!({"name": "edge", "uid": "node-uid", "creationTimestamp": "2026-01-01T00:00:00Z"});
    model.see_node(NodeFacts::of(&json!({ "metadata": metadata })));
    model
}

fn due(model: &Model) -> Vec<String> {
    model.due(Instant::now()).into_iter().map(|key| key.name).collect()
}

fn has(model: &mut Model, images: &[&str]) {
    let image = |name: &&str| {
        let key = super::super::fixtures::key(name);
        cri_api::Image {
            id: format!("id-of-{name}"),
            repo_tags: key.tag().into_iter().collect(),
            repo_digests: key.by_digest().into_iter().collect(),
            ..cri_api::Image::default()
        }
    };
    model.observe(&Presence::of(&images.iter().map(image).collect::<Vec<_>>()));
}

const OLD: &str = "r.example/app:1";
const NEW: &str = "r.example/app:2";

#[test]
fn edited_set_pulls_the_new_image_and_protects_the_old_one_for_a_while() {
    let mut model = model();
    assert!(model.see_sets(&[set("web", 1, &[OLD], &json!({}))], []));
    assert!(!model.see_sets(&[set("web", 1, &[OLD], &json!({}))], []), "nothing new");
    has(&mut model, &[OLD]);
    assert!(model.see_sets(&[set("web", 2, &[NEW], &json!({}))], []));
    assert!(model.release(Timestamp::UNIX_EPOCH).is_empty());
    assert_eq!(due(&model), [NEW]);
    let pins: Vec<String> = model.pinned_names().iter().map(ToString::to_string).collect();
    assert!(pins.contains(&OLD.to_owned()) && pins.contains(&NEW.to_owned()), "{pins:?}");
    let later = model.next_release().expect("a time");
    assert_eq!(later.as_second(), 3600);
    model.release(later);
    assert!(model.pinned_names().iter().all(|pin| pin.as_str() != OLD));
}

#[test]
fn deleted_set_removes_its_image_when_no_other_set_wants_it() {
    let remove = json!({"onDelete": "Remove"});
    let mut model = model();
    model.see_sets(&[set("a", 1, &[OLD], &remove), set("b", 1, &[OLD], &remove)], []);
    let key = super::super::fixtures::key(OLD);
    model.started(&key);
    let now = Now { clock: Instant::now(), wall: Timestamp::UNIX_EPOCH };
    model.ended(&key, Ok("id".to_owned()), now, &cluster::retry::system_random());
    assert!(model.wants_id("id"));
    model.see_sets(&[set("b", 1, &[OLD], &remove)], []);
    assert!(model.release(Timestamp::UNIX_EPOCH).is_empty());
    model.see_sets(&[], []);
    assert_eq!(model.release(Timestamp::UNIX_EPOCH), [key]);
    assert!(model.pinned_names().is_empty() && !model.wants_id("id"));
}

#[test]
fn namespaces_of_a_set_may_use_its_present_images() {
    let mut model = model();
    let access = |namespace: &str| json!({"access": {"namespaces": [namespace]}});
    model.see_sets(&[set("a", 1, &[OLD, NEW], &access("shop")), set("b", 1, &[OLD], &access("ads"))], []);
    has(&mut model, &[OLD]);
    let grants: Vec<_> = model.grants().into_iter().collect();
    let namespaces = ["ads".to_owned(), "shop".to_owned()].into();
    assert_eq!(grants, [(("r.example/app".to_owned(), format!("id-of-{OLD}")), namespaces)]);
    model.see_sets(&[], []);
    assert!(model.grants().is_empty());
}

#[test]
fn unreadable_set_counts_as_before() {
    let mut model = model();
    model.see_sets(&[set("web", 1, &[OLD], &json!({}))], []);
    model.see_sets(&[], ["web"]);
    assert_eq!(due(&model), [OLD]);
    model.see_sets(&[], ["other"]);
    assert!(due(&model).is_empty());
}

#[test]
fn restored_model_decides_as_the_saved_one() {
    let mut model = model();
    model.see_sets(&[set("web", 1, &[OLD, NEW], &json!({}))], []);
    model.see_nodes(5000);
    has(&mut model, &[OLD]);
    let text = serde_json::to_string(&model.saved()).expect("plain data");
    let mut restored = Model::restore(serde_json::from_str(&text).expect("its own text"));
    assert_eq!((restored.nodes(), restored.pinned_names()), (5000, model.pinned_names()));
    has(&mut restored, &[]);
    assert_eq!(due(&restored), [OLD, NEW], "the image that disappeared meanwhile is first");
    let report = restored.report(Timestamp::UNIX_EPOCH, "1", None);
    assert_eq!(report.images.len(), 2);
}

#[test]
fn labels_of_the_node_decide_at_once() {
    let selector = json!({"nodeSelector": {"matchLabels": {"disk": "ssd"}}});
    let sets = [set("web", 1, &[OLD], &selector)];
    let mut model = model();
    assert!(!model.see_sets(&sets, []));
    let labels = json!({"disk": "ssd"});
    let metadata = json!({"name": "edge", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels});
    model.see_node(NodeFacts::of(&json!({ "metadata": metadata })));
    assert!(model.see_sets(&sets, []));
    assert_eq!(due(&model), [OLD]);
    // The Node is deleted: what it was counts.
    model.see_node(None);
    assert_eq!(due(&model), [OLD]);
}
