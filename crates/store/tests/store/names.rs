//! Look-up of images by reference and by ID.

use imagelet_store::{ResolveError, Store, StoreError};
use oci::{Digest, ReferenceOrId};

use super::support::{Image, open, plain_layer, reference};

fn store() -> (tempfile::TempDir, Store) {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    (top, store)
}

/// Images without layers, until two ids begin with the same three digits.
fn twins(store: &Store) -> (Digest, Digest) {
    let mut seen = std::collections::BTreeMap::new();
    for number in 0.. {
        let image = Image::new(&format!("twin {number}"), &[]);
        let id = image.id();
        if let Some(other) = seen.insert(id.hex()[..3].to_owned(), image.clone()) {
            image.try_pull(store, None).expect("commits");
            other.try_pull(store, None).expect("commits");
            return (other.id(), id);
        }
    }
    unreachable!("there are only 4096 beginnings")
}

#[test]
fn every_spelling() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    image.pull(&store, "docker.io/library/busybox:1.36");
    store.tag(&image.id(), &reference("busybox")).expect("tags");
    let other = Image::new("two", &[plain_layer("a", b"aaa")]);
    other.pull(&store, "127.0.0.1:5000/team/app:v1");
    let id = image.id();
    let digest = Digest::sha256(&image.manifest);
    let other_digest = Digest::sha256(&other.manifest);
    let found: Vec<String> = vec![
        id.to_string(),
        id.hex().to_owned(),
        id.hex()[..12].to_owned(),
        format!("sha256:{}", &id.hex()[..12]),
        "busybox:1.36".to_owned(),
        "busybox".to_owned(),
        "busybox:latest".to_owned(),
        "library/busybox:1.36".to_owned(),
        "docker.io/busybox:1.36".to_owned(),
        "docker.io/library/busybox:1.36".to_owned(),
        "index.docker.io/library/busybox:1.36".to_owned(),
        format!("busybox@{digest}"),
        format!("busybox:anything@{digest}"),
        format!("docker.io/library/busybox@{digest}"),
    ];
    for text in found {
        let got = store.resolve(&text.as_str().into()).expect("resolves").map(|image| image.id);
        assert_eq!(got, Some(id.clone()), "{text}");
    }
    let absent: Vec<String> = vec![
        "busybox:2".to_owned(),
        format!("busybox@{other_digest}"),
        format!("sha256:{}", "0".repeat(64)),
        "0".repeat(64),
        digest.to_string(),
        id.hex()[..2].to_owned(),
        format!("{}x", &id.hex()[..12]),
        "Not A Name".to_owned(),
        "quay.io/library/busybox:1.36".to_owned(),
        format!("sha512:{}", "0".repeat(128)),
    ];
    for text in absent {
        assert_eq!(store.resolve(&text.as_str().into()).expect("resolves").map(|image| image.id), None, "{text}");
    }
    assert_eq!(
        store.resolve(&"127.0.0.1:5000/team/app:v1".into()).expect("resolves").map(|image| image.id),
        Some(other.id())
    );
    assert!(matches!(store.resolve(&"".into()), Err(ResolveError::Empty)));
}

#[test]
fn beginnings_of_several_ids_name_them() {
    let (_top, store) = store();
    let (one, two) = twins(&store);
    let error = store.resolve(&ReferenceOrId::parse(&one.hex()[..3])).expect_err("ambiguous");
    let text = error.to_string();
    let ResolveError::Ambiguous { prefix, ids } = error else { panic!("{error:?}") };
    let mut want = vec![one.clone(), two.clone()];
    want.sort();
    assert_eq!((prefix.as_str(), ids), (&one.hex()[..3], want));
    assert!(text.contains(one.short()) && text.contains(two.short()), "{text}");
    assert_eq!(
        store.resolve(&ReferenceOrId::parse(&one.hex()[..20])).expect("resolves").map(|image| image.id),
        Some(one)
    );
}

#[test]
fn a_name_wins_over_the_beginning_of_an_id() {
    let (_top, store) = store();
    let (one, two) = twins(&store);
    let name = &one.hex()[..3];
    store.tag(&two, &reference(name)).expect("tags");
    assert_eq!(store.resolve(&name.into()).expect("resolves").map(|image| image.id), Some(two));
}

#[test]
fn tags_take_any_spelling_but_no_digest() {
    let (_top, store) = store();
    let image = Image::new("one", &[]);
    image.try_pull(&store, None).expect("commits");
    store.tag(&image.id(), &reference("app")).expect("tags");
    store.tag(&image.id(), &reference("quay.io/x/app:2")).expect("tags");
    store.tag(&image.id(), &reference("quay.io/x/app:2")).expect("twice is fine");
    let record = store.resolve(&"app".into()).expect("resolves").expect("there");
    assert_eq!(
        record.tags.iter().map(String::as_str).collect::<Vec<_>>(),
        ["docker.io/library/app:latest", "quay.io/x/app:2"]
    );
    let by_digest = reference(&image.repo_digest("app"));
    assert!(matches!(store.tag(&image.id(), &by_digest), Err(StoreError::UnsuitableName { .. })));
    let nobody = Digest::sha256(b"nobody");
    assert!(matches!(store.tag(&nobody, &reference("app")), Err(StoreError::NotFound(id)) if id == nobody));
    assert_eq!(
        store.resolve(&"app".into()).expect("resolves").map(|i| i.id),
        Some(image.id()),
        "a failed tag moves nothing"
    );
}

#[test]
fn a_pin_is_kept() {
    let (_top, store) = store();
    let image = Image::new("one", &[]);
    assert!(!image.pull(&store, "docker.io/library/a:1").pinned);
    store.set_pinned(&image.id(), true).expect("pins");
    assert!(image.pull(&store, "docker.io/library/a:2").pinned, "a new pull does not unpin");
    store.set_pinned(&image.id(), false).expect("unpins");
    assert!(!store.resolve(&"a:1".into()).expect("resolves").expect("there").pinned);
}
