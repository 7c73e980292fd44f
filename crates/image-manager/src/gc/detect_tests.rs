//! Tests of `detect`: upstream's cases, and inputs that the kubelet ignores.

use cri_api::{ContainerMetadata, ImageSpec};

use std::time::Duration;

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

/// The history after a pass at a second, as `(first detected, last used)`.
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
fn images_of_runtime_handlers_are_distinguished() {
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
fn the_last_use_stays_after_the_container_is_removed() {
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
    let sandbox_image = "registry.k8s.io/pause:3.9".into();
    let always = AlwaysUsed { sandbox_image: Some(&sandbox_image), volumes: &["1".into()], pulls: &[] };
    let mut history = UsageHistory::default();
    let found = detect(&mut history, &images, &[], always, at(9));
    assert_eq!([0, 1, 2].map(|number| found.user(number)), [User::Sandbox, User::Volume, User::None]);
    assert_eq!(seen(&history, "0"), Some((9, Some(9))));
}

#[test]
fn images_of_pods_are_found_in_any_spelling() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let by_digest = |name: &str| format!("r.example/{name}@{digest}");
    let id = format!("sha256:{}", "a".repeat(64));
    let named = |id: &str, name: &str| Image { repo_tags: vec![name.to_owned()], ..image(id) };
    let images = [
        named("0", "docker.io/library/busybox:latest"),
        named("1", &by_digest("a")),
        named("2", &by_digest("b:1")),
        image(&id),
        named("4", "NO NAME"),
        image("5"),
    ];
    let volumes = ["busybox".to_owned(), by_digest("a:1"), by_digest("b:1"), "a".repeat(64), "NO NAME".to_owned()];
    let volumes = volumes.map(ReferenceOrId::from);
    let always = AlwaysUsed { volumes: &volumes, ..AlwaysUsed::default() };
    let found = detect(&mut UsageHistory::default(), &images, &[], always, at(9));
    let used = [0, 1, 2, 3, 4, 5].map(|number| found.in_use(number));
    assert_eq!(used, [true, true, true, true, true, false]);
}

#[test]
fn a_clock_that_is_set_back_takes_no_use_away() {
    let mut history = UsageHistory::default();
    pass(&mut history, &[image("0"), image("1")], &[container("0")], 10_000);
    pass(&mut history, &[image("0"), image("1")], &[container("0")], 10_600);
    // Known times move with the clock: the image was on the node for ten minutes, and is in use now.
    pass(&mut history, &[image("0"), image("1")], &[container("0")], 1000);
    assert_eq!(seen(&history, "0"), Some((400, Some(1000))));
    assert_eq!(seen(&history, "1"), Some((400, None)));
}

#[test]
fn a_clock_that_is_set_forwards_makes_nothing_older() {
    let mut history = UsageHistory::default();
    let images = [image("0"), image("1")];
    let mut at_moment = |wall: i64, boot: &str, up: u64, containers: &[Container]| {
        let boot = Some(super::super::Boot { id: boot.into(), up: Duration::from_secs(up) });
        detect_at(&mut history, &images, containers, AlwaysUsed::default(), Moment { wall: at(wall), boot });
        let ages = ["0", "1"].map(|id| history.get(id, "").map(|record| history.effective(record.idle_since())));
        ages.map(|since| wall - since.expect("known").as_second())
    };
    let year = 365 * 24 * 3600;
    assert_eq!(at_moment(1000, "a", 10, &[container("0")]), [0, 0]);
    assert_eq!(at_moment(1100, "a", 110, &[]), [100, 100]);
    // The time is set.
    assert_eq!(at_moment(1200 + 50 * year, "a", 210, &[]), [200, 200]);
    // The node is off for a year, and the next pass is a minute after the boot.
    assert_eq!(at_moment(1200 + 51 * year, "b", 60, &[]), [260, 260]);
    // Its battery is empty.
    assert_eq!(at_moment(100, "c", 100, &[]), [260, 260]);
    assert_eq!(at_moment(200, "c", 200, &[container("1")]), [360, 0]);
}

#[test]
fn what_the_service_knows_of_an_image_s_coming_counts() {
    let now = 1_800_000_000;
    let came = |id: &str, second: i64| Image { pulled_at: Some(second * 1_000_000_000), ..image(id) };
    let mut history = UsageHistory::default();
    // Without a history the reported times count, but not those of a clock that was not set or is ahead.
    pass(
        &mut history,
        &[came("old", now - 5000), came("unset", 20), came("ahead", now + 900), image("untold")],
        &[],
        now,
    );
    assert_eq!(seen(&history, "old"), Some((now - 5000, None)));
    for id in ["unset", "ahead", "untold"] {
        assert_eq!(seen(&history, id), Some((now, None)), "{id}");
    }
    // Later ones were pulled after the last pass.
    let images = [came("old", now - 5000), came("new", now + 100), came("strange", now - 100)];
    pass(&mut history, &images, &[], now + 300);
    assert_eq!(seen(&history, "new"), Some((now + 100, None)));
    assert_eq!(seen(&history, "strange"), Some((now, None)));
    // It was removed and pulled again between two passes.
    pass(&mut history, &[came("old", now + 500)], &[], now + 600);
    assert_eq!(seen(&history, "old"), Some((now + 500, None)));
}

#[test]
fn an_id_that_is_not_here_is_looked_for_in_any_number_of_images() {
    for count in 0..70 {
        let images: Vec<Image> = (0..count).map(|number| image(&number.to_string())).collect();
        let found = pass(&mut UsageHistory::default(), &images, &[container("none"), container("7")], 1);
        let used: Vec<usize> = (0..count).filter(|number| found.in_use(*number)).collect();
        assert_eq!(used, if count > 7 { vec![7] } else { vec![] }, "{count}");
    }
}

#[test]
fn the_first_use_ends_protection() {
    let mut history = UsageHistory::default();
    history.protect("0", "", at(0), at(1000));
    history.protect("1", "", at(0), at(1000));
    pass(&mut history, &[image("0"), image("1")], &[container("0")], 10);
    assert_eq!(history.get("0", "").and_then(|record| record.protected_until), None);
    assert_eq!(history.get("1", "").and_then(|record| record.protected_until), Some(at(1000)));
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
    let lone = Container { id: "lone".into(), ..container("0") };
    pass(&mut history, &[image("0")], std::slice::from_ref(&lone), 3);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("container lone"));
    pass(&mut history, &[image("0")], std::slice::from_ref(&user), 4);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("shop/web-0/main"));
    // After the use that another process saw, too.
    let mut other = history.clone();
    pass(&mut other, &[image("0")], &[lone], 5);
    history.merge(other);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("container lone"));
    pass(&mut history, &[image("0")], &[user], 6);
    assert_eq!(history.get("0", "").map(|r| &*r.used_by), Some("shop/web-0/main"));
}

#[test]
fn ids_that_begin_alike_are_distinguished() {
    let id = |end: char| format!("sha256:{}{end}", "0123456789abcdef".repeat(4).split_at(63).0);
    let found = pass(&mut UsageHistory::default(), &[image(&id('0')), image(&id('1'))], &[container(&id('1'))], 1);
    assert_eq!([0, 1].map(|number| found.in_use(number)), [false, true]);
    let found = pass(&mut UsageHistory::default(), &[image(&id('0'))], &[container(&id('1'))], 1);
    assert!(!found.in_use(0));
}

#[test]
fn on_a_big_node_every_image_has_the_right_user() {
    let id = |number: usize| oci::Digest::sha256(number.to_string().as_bytes()).to_string();
    let images: Vec<Image> = (0..300).map(|number| image(&id(number))).collect();
    // Some are of images that were removed, some name their image in another field; the last image is not used.
    let containers: Vec<Container> = (0..20_777)
        .map(|number| match number % 7 {
            3 => container(&id(900 + number)),
            5 => Container { image_id: String::new(), image_ref: id(number * 31 % 299), ..container("") },
            _ => container(&id(number * 31 % 299)),
        })
        .collect();
    let found = pass(&mut UsageHistory::default(), &images, &containers, 1);
    for (number, image) in images.iter().enumerate() {
        let user = containers.iter().position(|c| c.image_id == image.id);
        let other = containers.iter().position(|c| c.image_ref == image.id);
        match found.user(number) {
            User::Container(container) => assert!([user, other].contains(&Some(container)), "{number}: {container}"),
            User::None => assert_eq!((user, other, number), (None, None, 299)),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// CRI-O reports IDs without an algorithm.
#[test]
fn containers_use_images_by_ids_without_algorithm() {
    let digits = "ab".repeat(32);
    let images = [image(&format!("sha256:{digits}")), image(&format!("sha256:{}", "cd".repeat(32)))];
    let by_id = container(&digits);
    let by_reference = Container { image_ref: digits.clone(), ..container("") };
    let by_name = Container { image: ImageSpec::new(&digits), ..container("") };
    for container in [by_id, by_reference, by_name] {
        let found = pass(&mut UsageHistory::default(), &images, std::slice::from_ref(&container), 1);
        assert_eq!((found.in_use(0), found.in_use(1)), (true, false), "{container:?}");
    }
}
