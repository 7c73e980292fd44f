//! Tests of `detect`: upstream's cases, and what the kubelet does not look at.

use cri_api::{ContainerMetadata, ImageSpec};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn image(id: &str) -> Image {
    Image { id: id.into(), size: 1024, ..Image::default() }
}

fn for_handler(id: &str, handler: &str) -> Image {
    let spec = ImageSpec { runtime_handler: handler.into(), ..ImageSpec::new("") };
    Image { spec: Some(spec), ..image(id) }
}

fn container(image_id: &str) -> Container {
    Container { id: format!("c-{image_id}"), image_id: image_id.into(), ..Container::default() }
}

/// What a pass at a second leaves in the history, as `(first detected, last used)`.
fn pass(history: &mut UsageHistory, images: &[Image], containers: &[Container], second: i64) -> Detected {
    detect(history, images, containers, AlwaysUsed::default(), at(second))
}

fn seen(history: &UsageHistory, key: &str) -> Option<(i64, Option<i64>)> {
    let record = history.get(key, "")?;
    Some((record.first_detected.as_second(), record.last_used.map(Timestamp::as_second)))
}

// upstream: gc/TestDetectImagesInitialDetect
#[test]
fn the_first_pass_dates_everything_to_now() {
    let mut history = UsageHistory::default();
    let images = [image("0"), image("1"), image("2")];
    let by_name = Container { image: ImageSpec::new(""), ..container("2") };
    pass(&mut history, &images, &[container("1"), by_name], 100);
    assert_eq!(seen(&history, "0"), Some((100, None)));
    assert_eq!(seen(&history, "1"), Some((100, Some(100))));
    assert_eq!(seen(&history, "2"), Some((100, Some(100))));
}

// upstream: gc/TestDetectImagesInitialDetectWithRuntimeHandlerInImageCriAPIFeatureGate
#[test]
fn images_of_runtime_handlers_are_told_apart() {
    let mut history = UsageHistory::default();
    let images = [image("0"), for_handler("1", "a"), for_handler("1", "b"), image("2")];
    let uses = Container { image: ImageSpec { runtime_handler: "b".into(), ..ImageSpec::default() }, ..container("1") };
    let found = pass(&mut history, &images, &[uses], 7);
    assert_eq!([0, 1, 2, 3].map(|number| found.in_use(number)), [false, false, true, false]);
    let mut keys: Vec<&str> = history.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["0", "1,a", "1,b", "2"]);
    assert_eq!(history.get("1", "b").and_then(|r| r.last_used), Some(at(7)));
}

#[test]
fn a_user_without_handler_uses_the_images_of_all() {
    let mut history = UsageHistory::default();
    let found = pass(&mut history, &[for_handler("1", "a"), for_handler("1", "b")], &[container("1")], 7);
    assert!(found.in_use(0) && found.in_use(1));
}

// upstream: gc/TestDetectImagesWithNewImage
#[test]
fn a_new_image_gets_the_time_of_its_pass() {
    let mut history = UsageHistory::default();
    pass(&mut history, &[image("0"), image("1")], &[container("1")], 100);
    pass(&mut history, &[image("0"), image("1"), image("2")], &[container("1")], 200);
    assert_eq!(seen(&history, "0"), Some((100, None)));
    assert_eq!(seen(&history, "1"), Some((100, Some(200))));
    assert_eq!(seen(&history, "2"), Some((200, None)));
}

// upstream: gc/TestDetectImagesContainerStopped
#[test]
fn the_last_use_stays_when_the_container_is_gone() {
    let mut history = UsageHistory::default();
    let images = [image("0"), image("1")];
    pass(&mut history, &images, &[container("1")], 100);
    pass(&mut history, &images, &[], 200);
    assert_eq!(seen(&history, "0"), Some((100, None)));
    assert_eq!(seen(&history, "1"), Some((100, Some(100))));
}

// upstream: gc/TestDetectImagesWithRemovedImages
#[test]
fn records_go_with_their_images() {
    let mut history = UsageHistory::default();
    pass(&mut history, &[image("0"), image("1")], &[container("1")], 100);
    pass(&mut history, &[], &[], 200);
    assert!(history.is_empty());
}

#[test]
fn whatever_a_runtime_calls_an_image_is_found() {
    let digest = format!("sha256:{}", "d".repeat(64));
    let named = Image {
        repo_tags: vec!["docker.io/library/busybox:1".into()],
        repo_digests: vec![format!("docker.io/library/busybox@{digest}")],
        ..image(&format!("sha256:{}", "a".repeat(64)))
    };
    let cases = [
        ("id", Container { image_ref: named.id.clone(), ..Container::default() }, true),
        ("id without algorithm", Container { image_ref: "a".repeat(64), ..Container::default() }, true),
        (
            "digest of the manifest",
            Container { image_ref: format!("docker.io/library/busybox@{digest}"), ..Container::default() },
            true,
        ),
        ("name as spelled", Container { image: ImageSpec::new("busybox:1"), ..Container::default() }, true),
        (
            "name by digest",
            Container { image: ImageSpec::new(format!("busybox@{digest}")), ..Container::default() },
            true,
        ),
        ("another tag", Container { image: ImageSpec::new("busybox:2"), ..Container::default() }, false),
        (
            "an id that is gone, and a name that has moved on",
            Container {
                image_id: format!("sha256:{}", "b".repeat(64)),
                image_ref: format!("sha256:{}", "b".repeat(64)),
                image: ImageSpec::new("busybox:1"),
                ..Container::default()
            },
            true,
        ),
        ("nothing", Container::default(), false),
    ];
    for (name, container, want) in cases {
        let found = pass(&mut UsageHistory::default(), std::slice::from_ref(&named), &[container], 1);
        assert_eq!(found.in_use(0), want, "{name}");
    }
}

#[test]
fn sandbox_and_volumes_are_in_use_always() {
    let sandbox = Image { repo_tags: vec!["registry.k8s.io/pause:3.9".into()], ..image("0") };
    let images = [sandbox, image("1"), image("2")];
    let always = AlwaysUsed { sandbox_image: "registry.k8s.io/pause:3.9", volumes: &["1".to_owned()], pulls: &[] };
    let mut history = UsageHistory::default();
    let found = detect(&mut history, &images, &[], always, at(9));
    assert_eq!([0, 1, 2].map(|number| found.user(number)), [User::Sandbox, User::Volume, User::None]);
    assert_eq!(seen(&history, "0"), Some((9, Some(9))));
}

#[test]
fn a_clock_that_is_set_back_takes_no_use_away() {
    let mut history = UsageHistory::default();
    pass(&mut history, &[image("0")], &[container("0")], 1000);
    pass(&mut history, &[image("0")], &[container("0")], 10);
    assert_eq!(seen(&history, "0"), Some((1000, Some(1000))));
}

#[test]
fn the_last_user_is_named() {
    let mut history = UsageHistory::default();
    let mut user = container("0");
    user.metadata = ContainerMetadata { name: "main".into(), attempt: 0 };
    user.labels.insert(NAMESPACE.into(), "shop".into());
    user.labels.insert(POD.into(), "web-0".into());
    pass(&mut history, &[image("0")], std::slice::from_ref(&user), 1);
    pass(&mut history, &[image("0")], &[], 2);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("shop/web-0/main"));
    pass(&mut history, &[image("0")], &[container("0")], 3);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("container c-0"));
    assert!(is_named("shop/web-0/main", &user) && !is_named("shop/web-0/main2", &user));
}
