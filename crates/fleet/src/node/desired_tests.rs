//! Tables of the images that a node must have.

use super::super::fixtures::{digest, key, set};
use super::*;

const APP: &str = "r.example/app:1";

#[test]
fn names_have_the_form_of_image_services() {
    let by_digest = |name: &str| format!("{name}@{}", digest("d"));
    for (name, resolved, tag, found) in [
        ("busybox", false, Some("docker.io/library/busybox:latest"), None),
        ("busybox:1", true, Some("docker.io/library/busybox:1"), Some(by_digest("docker.io/library/busybox"))),
        (&*by_digest("r.example/app:1"), false, None, Some(by_digest("r.example/app"))),
        ("not a name", true, None, None),
    ] {
        let resolved = resolved.then(|| digest("d").to_string());
        let key = ImageKey::of(&ResolvedImage { name: name.to_owned(), digest: resolved, ..ResolvedImage::default() });
        assert_eq!((key.tag().as_deref(), key.by_digest()), (tag, found), "{name}");
    }
}

#[test]
fn image_that_one_set_removes_and_another_wants_is_kept() {
    let mut removes = set("a", &[APP]);
    removes.options.on_delete = OnDelete::Remove;
    removes.options.release_after = 0;
    let keeps = set("b", &[APP]);
    let both = desired([&removes, &keeps]);
    let image = &both.images[&key(APP)];
    assert_eq!((image.on_delete, image.release_after), (OnDelete::Release, 3600));
    assert_eq!(desired([&removes]).images[&key(APP)].on_delete, OnDelete::Remove);
}

#[test]
fn sets_are_merged_so_that_each_has_its_way() {
    let mut waits = set("a", &[APP, "r.example/other:1"]);
    waits.released = false;
    waits.options.pin = false;
    waits.options.mode = Mode::Once;
    waits.options.pull_secrets = vec!["one".to_owned()];
    waits.options.namespaces = vec!["x".to_owned()];
    let mut starts = set("b", &[APP]);
    starts.options.pull_secrets = vec!["two".to_owned(), "one".to_owned()];
    starts.options.namespaces = vec!["y".to_owned()];
    let both = desired([&waits, &starts]);
    let image = &both.images[&key(APP)];
    assert!(image.may_start && image.pin && image.stays);
    assert_eq!(image.secrets, ["one", "two"]);
    assert_eq!(image.namespaces.iter().collect::<Vec<_>>(), ["x", "y"]);
    let other = &both.images[&key("r.example/other:1")];
    assert!(!other.may_start && !other.pin && !other.stays);
}

#[test]
fn finished_sets_start_nothing() {
    let mut finished = set("a", &[APP]);
    finished.finished = true;
    assert!(!desired([&finished]).images[&key(APP)].may_start);
}

#[test]
fn two_digests_of_one_tag_are_two_images() {
    let first = set("a", &[APP]);
    let mut second = set("b", &[APP]);
    second.images[0].digest = Some(digest("moved").to_string());
    assert_eq!(desired([&first, &second]).images.len(), 2);
}

#[test]
fn image_without_a_digest_waits_unless_nodes_resolve() {
    let mut unresolved = set("a", &[APP, "not a name"]);
    unresolved.images[0].digest = None;
    unresolved.images[0].reason = Some("ImageNotFound".to_owned());
    let all = desired([&unresolved]);
    let reasons: Vec<_> =
        all.images.values().filter_map(|image| Some(image.obstacle.as_ref()?.reason.as_str())).collect();
    assert_eq!(reasons.len(), 2);
    assert!(reasons.contains(&"ImageNotFound") && reasons.contains(&"InvalidImageName"), "{reasons:?}");
    unresolved.options.resolves_on_node = true;
    let all = desired([&unresolved]);
    assert_eq!(all.images.values().filter(|image| image.obstacle.is_some()).count(), 1);
}
