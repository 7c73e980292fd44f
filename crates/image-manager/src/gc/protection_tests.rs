//! Tests of pre-pulled images: they are removed last, however collection is requested, and their users are known by then.
//! The part of `select` is tested by tables and properties of its own.

use std::sync::Arc;
use std::time::Duration;

use super::manager::tests::{Rig, SECOND, image, policy};
use super::{GcPolicy, Goal, Pattern, Pins, Thresholds};
use crate::ReclaimSpace as _;

const HOUR: Duration = Duration::from_secs(3600);

/// A full disk of 1000 bytes: `old` was used once, by a container that was removed, and the others, which were pulled three
/// minutes ago, never. All have 100 bytes.
async fn full(policy: GcPolicy) -> Rig {
    let images = ["ahead-1", "ahead-2", "old"].map(|id| image(id, 100)).into();
    let rig = Rig::changed(policy, 1000, 0, images, |options| {
        options.protect_pre_pulled = HOUR;
        options.pressure.thresholds = Thresholds::parse([("imagefs.available", "15%")]).expect("a threshold");
    });
    rig.use_image("old");
    rig.manager.detect().await.expect("seen");
    rig.runtime.take_container("c-old");
    rig.pass(180 * SECOND);
    rig
}

#[tokio::test]
async fn image_of_an_image_set_stays_until_its_pin_is_released() {
    let images = ["a", "b"].map(|id| image(id, 100)).into();
    let rig =
        Rig::changed(policy(95, 80, 0, 0), 1000, 500, images, |options| options.protect_pre_pulled = Duration::ZERO);
    let pins: Pins = [Pattern::parse("r.example/a:1").expect("a pattern")].into_iter().collect();
    assert!(rig.manager.pin_for_image_sets(pins.clone()).await.expect("pinned"));
    assert!(!rig.manager.pin_for_image_sets(pins.clone()).await.expect("pinned"), "nothing new");
    assert_eq!((rig.manager.pinned().await.expect("read"), rig.manager.pins().await.expect("read").len()), (pins, 0));
    let plan = rig.manager.plan(Some(Goal::AllUnused)).await.expect("a plan");
    let rows: Vec<_> = plan.images.iter().map(|row| (row.decision.as_str(), row.why.as_str())).collect();
    assert!(rows.contains(&("pinned", "pinned by an image set of the cluster")), "{rows:?}");
    rig.manager.collect(Goal::AllUnused).await.expect("collected");
    assert_eq!(rig.shelf.ids().len(), 1);
    rig.manager.pin_for_image_sets(Pins::default()).await.expect("released");
    rig.manager.collect(Goal::AllUnused).await.expect("collected");
    assert!(rig.shelf.ids().is_empty());
}

#[tokio::test]
async fn a_round_by_thresholds_takes_them_last() {
    // Nine tenths may be used: the old one is enough.
    let rig = full(policy(95, 90, 120, 0)).await;
    let report = rig.manager.garbage_collect().await.expect("enough");
    assert_eq!((rig.shelf.ids(), report.removed[0].protected_until), (vec!["ahead-1".into(), "ahead-2".into()], None));

    // Eight tenths may: the least recently detected of the others has to go as well, and the report says so.
    let rig = full(policy(95, 80, 120, 0)).await;
    let plan = rig.manager.plan(None).await.expect("a plan");
    let rows: Vec<_> = plan.images.iter().map(|row| (row.id.as_str(), row.decision.as_str())).collect();
    assert_eq!(rows, [("old", "remove"), ("ahead-1", "remove"), ("ahead-2", "protected")]);
    assert_eq!(plan.images[0].why, "its space is needed");
    assert!(plan.images[1].why.starts_with("its space is needed, and nothing else suffices, "), "{plan:#?}");
    assert!(plan.images[1..].iter().all(|row| row.protected_until.is_some()), "{plan:#?}");
    let report = rig.manager.garbage_collect().await.expect("enough");
    assert_eq!(rig.shelf.ids(), ["ahead-2"]);
    let protected: Vec<_> = report.removed.iter().map(|went| went.protected_until.is_some()).collect();
    assert_eq!(protected, [false, true]);
}

#[tokio::test]
async fn disk_pressure_takes_them_last() {
    let rig = full(policy(100, 90, 120, 0)).await;
    let report = rig.manager.relieve().await.expect("enough").expect("there was reason");
    // Until 15 percent are free.
    assert_eq!((report.removed[0].id.as_str(), rig.shelf.ids()), ("old", vec!["ahead-2".to_owned()]));
}

#[tokio::test]
async fn the_kubelets_minimum_age_holds_them_as_it_holds_all() {
    let rig = full(policy(95, 80, 181, 0)).await;
    for goal in [Goal::AllUnused, Goal::Free(300), Goal::OlderThan(Duration::ZERO)] {
        assert!(rig.manager.collect(goal).await.is_err() || rig.shelf.ids().len() == 3, "{goal:?}");
    }
    let problem = rig.manager.garbage_collect().await.expect_err("not enough").to_string();
    assert!(problem.contains("(freed 0 bytes)"), "{problem}");
    assert_eq!(rig.shelf.ids().len(), 3);
    // An explicit minimum age replaces that of the policy.
    let done = rig.manager.collect_by(Some(Goal::Free(300)), Some(Duration::ZERO)).await.expect("it ran");
    assert!(done.1.is_none(), "{done:?}");
    assert!(rig.shelf.ids().is_empty());
}

#[tokio::test]
async fn a_command_takes_them_last_and_use_pins_and_rules_are_walls() {
    let rig = full(policy(95, 80, 120, 0)).await;
    let report = rig.manager.collect(Goal::Free(200)).await.expect("enough");
    let went: Vec<_> = report.removed.iter().map(|went| went.id.as_str()).collect();
    assert_eq!(went, ["old", "ahead-1"]);
    assert_eq!(report.removed.iter().map(|went| went.protected_until.is_some()).collect::<Vec<_>>(), [false, true]);

    let rig = full(policy(95, 80, 120, 0)).await;
    rig.manager.pin("r.example/ahead-1").await.expect("pinned");
    rig.use_image("ahead-2");
    rig.manager.collect(Goal::AllUnused).await.expect("one");
    assert_eq!(rig.shelf.ids(), ["ahead-1", "ahead-2"]);
    rig.manager.collect(Goal::Free(500)).await.expect_err("not enough");
    assert_eq!(rig.shelf.ids(), ["ahead-1", "ahead-2"]);
    // Neither is in the way any more.
    rig.manager.unpin("r.example/ahead-1").await.expect("unpinned");
    rig.runtime.take_container("c-ahead-2");
    let report = rig.manager.collect(Goal::AllUnused).await.expect("both");
    let went: Vec<_> = report.removed.iter().map(|went| went.id.as_str()).collect();
    assert_eq!(went, ["ahead-2", "ahead-1"], "a container has used one of them");
}

#[tokio::test]
async fn images_that_pods_are_about_to_use_are_in_use() {
    let images = vec![image("0", 100), image("1", 100)];
    let rig = Rig::changed(policy(95, 80, 0, 0), 1000, 0, images, |options| {
        options.protect_pre_pulled = HOUR;
        options.volumes = Some(Arc::new(|| vec!["r.example/0:1".into()]));
    });
    rig.manager.collect(Goal::AllUnused).await.expect("one");
    assert_eq!(rig.shelf.ids(), ["0"], "there is no container of it yet, but a pod");
}

#[tokio::test]
async fn a_pull_takes_them_last_and_never_what_its_pod_needs() {
    let rig = full(policy(100, 95, 120, 0)).await;
    let reclaimed = rig.manager.reclaim_space(Some(100)).await;
    assert_eq!((reclaimed.removed, reclaimed.enough, rig.shelf.ids().len()), (1, true, 2));
    assert_eq!(rig.shelf.ids(), ["ahead-1", "ahead-2"]);
    // Another one takes what it cannot do without, and leaves what is held for the same pod.
    let held = rig.manager.hold(&"r.example/ahead-1:1".into());
    let reclaimed = rig.manager.reclaim_space(Some(200)).await;
    assert_eq!((reclaimed.enough, rig.shelf.ids()), (true, vec!["ahead-1".to_owned()]));
    let reclaimed = rig.manager.reclaim_space(Some(300)).await;
    assert_eq!((reclaimed.removed, reclaimed.enough), (0, false));
    drop(held);
}

#[tokio::test]
async fn protection_ends_by_time_and_by_the_first_use() {
    let rig = Rig::changed(policy(90, 80, 0, 0), 1000, 900, vec![image("0", 10), image("1", 10)], |options| {
        options.protect_pre_pulled = HOUR;
    });
    let decisions = async || {
        let plan = rig.manager.plan(Some(Goal::Free(0))).await.expect("a plan");
        plan.images.into_iter().map(|row| (row.id, row.decision)).collect::<Vec<_>>()
    };
    let both = |one: &str, other: &str| [("0".to_owned(), one.to_owned()), ("1".to_owned(), other.to_owned())];
    assert_eq!(decisions().await, both("protected", "protected"));
    rig.use_image("0");
    rig.manager.detect().await.expect("seen");
    rig.runtime.take_container("c-0");
    rig.pass(600 * SECOND);
    assert_eq!(decisions().await, both("not-needed", "protected"), "the other one has been used");
    rig.manager.protect("1", "", 2 * HOUR).await.expect("protected");
    rig.pass(3000 * SECOND);
    assert_eq!(decisions().await, both("not-needed", "protected"), "by request it stays for longer");
    // A sixtieth longer at most.
    rig.pass((4200 + 120) * SECOND);
    assert_eq!(decisions().await, both("not-needed", "not-needed"));
}
