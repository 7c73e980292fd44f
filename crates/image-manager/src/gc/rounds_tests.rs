//! Defects of the kubelet (found by reading its source), each as a case of its own that imagelet handles right.

use cri_api::Image;

use crate::gc::manager::tests::{Rig, SECOND, image, policy};
use crate::gc::{Goal, KeepRule, Pattern, RemovedBecause, RuleEffect};
use crate::{PullRecords, RecordsOptions};

/// As soon as the kubelet runs for longer than the maximum age, it removes by age every image that was never used, even one
/// that was pulled a second ago, and ignores the minimum age.
#[tokio::test]
async fn removal_by_age_keeps_an_image_just_pulled() {
    let rig = Rig::new(policy(90, 80, 120, 60), 10_000, 9000, vec![image("old", 100)]);
    rig.manager.garbage_collect().await.expect("nothing to do");
    // The process runs for longer than the maximum age when another image is pulled.
    rig.pass(61 * SECOND);
    rig.shelf.lock().images.push(image("new", 100));
    rig.manager.garbage_collect().await.expect("nothing to do");
    assert_eq!(rig.shelf.ids(), ["old", "new"], "nothing is here for the minimum age");
    rig.pass(60 * SECOND);
    let report = rig.manager.garbage_collect().await.expect("one is too old");
    assert_eq!(rig.shelf.ids(), ["new"]);
    assert_eq!(report.removed[0].because, RemovedBecause::Age);
    rig.pass(60 * SECOND);
    rig.manager.garbage_collect().await.expect("the other one as well");
    assert!(rig.shelf.ids().is_empty());
}

/// In the kubelet an image that cannot be removed by age ends the round: the disk stays full.
#[tokio::test]
async fn a_failed_removal_by_age_does_not_end_the_round() {
    let rig = Rig::new(policy(90, 50, 0, 60), 1000, 50, vec![image("stuck", 300), image("used a while ago", 600)]);
    rig.use_image("used a while ago");
    rig.manager.detect().await.expect("seen");
    rig.pass(61 * SECOND);
    rig.manager.detect().await.expect("seen");
    rig.runtime.take_container("c-used a while ago");
    rig.shelf.lock().stuck.insert("stuck".into());
    rig.pass(SECOND);
    let error = rig.manager.garbage_collect().await.expect_err("one is stuck").to_string();
    assert!(error.contains("wanted to free images older than 1m0s"), "{error}");
    assert_eq!(rig.shelf.ids(), ["stuck"], "space was needed, and was made");
}

/// After a collection the kubelet removes the pull records of images that are in use, pinned or were not inspected, and with
/// them the proof of which pods may use the images.
#[tokio::test]
async fn records_stay_with_every_image_that_stays() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = std::sync::Arc::new(|| jiff::Timestamp::from_second(1_600_000_000).expect("in range"));
    let records = PullRecords::open(RecordsOptions::new(directory.path(), clock)).await.expect("an empty directory");
    let ids = ["used", "pinned", "kept", "young", "not visited", "stuck", "gone"];
    for id in ids {
        records.add(&format!("r.example/{}:1", id.replace(' ', "-")), id, None).await.expect("recorded");
    }
    let pinned = Image { pinned: true, ..image("pinned", 10) };
    let images = vec![image("used", 10), pinned, image("kept", 10), image("gone", 200), image("not visited", 10)];
    let (of, rule) = (records.clone(), Pattern::parse("r.example/kept").expect("a pattern"));
    let rig = Rig::changed(policy(90, 80, 60, 0), 1000, 30, images, move |options| {
        options.records = Some(of);
        options.keep = vec![KeepRule { pattern: rule, effect: RuleEffect::Keep }];
    });
    rig.use_image("used");
    rig.manager.detect().await.expect("seen");
    rig.pass(60 * SECOND);
    rig.shelf.lock().images.extend([image("young", 10), image("stuck", 10)]);
    rig.shelf.lock().stuck.insert("stuck".into());
    let report = rig.manager.garbage_collect().await.expect("enough");
    assert_eq!((report.removed.len(), report.removed[0].id.as_str(), report.pruned_records), (1, "gone", 1));
    rig.pass(60 * SECOND);
    rig.manager.collect(Goal::AllUnused).await.expect_err("one is stuck");
    assert_eq!(rig.shelf.ids(), ["used", "pinned", "kept", "stuck"]);
    let left = std::fs::read_dir(directory.path().join("pulled")).expect("there").count();
    assert_eq!(left, 4, "the records of those that are here, and no others");
}

/// The kubelet removes images by their id alone, whichever runtime handler they are for, and its image volumes never match
/// the images of handlers.
#[tokio::test]
async fn images_of_handlers_are_removed_as_such_and_volumes_count_for_all() {
    let of = |handler: &str| {
        let spec = cri_api::ImageSpec { runtime_handler: handler.into(), ..cri_api::ImageSpec::default() };
        Image { spec: Some(spec), ..image("same", 10) }
    };
    let images = vec![of("a"), of("b"), image("volume", 10)];
    let rig = Rig::changed(policy(90, 80, 0, 0), 1000, 900, images, |options| {
        options.volumes = Some(std::sync::Arc::new(|| vec!["r.example/volume:1".into()]));
    });
    rig.runtime.put_container(cri_api::Container {
        id: "c".into(),
        image_id: "same".into(),
        image: cri_api::ImageSpec { runtime_handler: "b".into(), ..cri_api::ImageSpec::default() },
        ..cri_api::Container::default()
    });
    rig.manager.collect(Goal::AllUnused).await.expect("one goes");
    assert_eq!(*rig.shelf.removed.lock(), [("same".to_owned(), "a".to_owned())]);
}

/// A clock that is set, or a restart, changes in the kubelet what is old: its history is in memory, by the time of day.
#[tokio::test]
async fn a_clock_that_is_set_removes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let up = std::sync::Arc::new(base::lock::Mutex::new(("first", 1000)));
    let rig = || {
        let (at, clock) = (directory.path().to_owned(), std::sync::Arc::clone(&up));
        let images = vec![image("job", 100), image("never", 100)];
        Rig::changed(policy(90, 80, 120, 7 * 86_400), 10_000, 9000, images, move |options| {
            options.directory = Some(at);
            options.boot_clock = Some(std::sync::Arc::new(move || {
                let (id, up) = *clock.lock();
                Some(crate::gc::Boot { id: id.into(), up: std::time::Duration::from_secs(up) })
            }));
        })
    };
    let year = 365 * 86_400;
    let first = rig();
    first.use_image("job");
    first.manager.detect().await.expect("seen");
    // A minute later the clock is set fifty years forward; the job has ended. Also in another process.
    for second in [rig(), rig()] {
        second.pass((60 + 50 * year) * SECOND);
        *up.lock() = ("first", 1060);
        second.manager.garbage_collect().await.expect("nothing to do");
        assert_eq!(second.shelf.ids().len(), 2);
        let plan = second.manager.plan(Some(Goal::AllUnused)).await.expect("a plan");
        assert!(plan.images.iter().all(|row| row.decision == "too-young"), "{plan:?}");
    }
    // The node is off for a month, and boots with a clock that was never set.
    *up.lock() = ("second", 5);
    let third = rig();
    third.pass(-1_600_000_000 * SECOND);
    third.manager.garbage_collect().await.expect("nothing to do");
    assert_eq!(third.shelf.ids().len(), 2);
    // They do get old.
    *up.lock() = ("second", 5 + 7 * 86_400);
    third.pass(7 * 86_400 * SECOND);
    third.manager.garbage_collect().await.expect("both are too old");
    assert!(third.shelf.ids().is_empty());
}

/// Rules of a reloaded configuration apply from the next round on; other options stay.
#[tokio::test]
async fn rules_change_while_the_collector_runs() {
    let rig = Rig::new(policy(100, 80, 0, 0), 1000, 100, vec![image("a", 300), image("b", 600)]);
    rig.manager.garbage_collect().await.expect("it is off");
    assert_eq!(rig.shelf.ids().len(), 2);
    let mut of = (*rig.manager.options()).clone();
    of.policy = policy(50, 40, 0, 0);
    of.keep = vec![KeepRule { pattern: Pattern::parse("r.example/b").expect("a pattern"), effect: RuleEffect::Keep }];
    of.node_status_max_images = 7;
    of.settle = std::time::Duration::from_secs(1234);
    rig.manager.adopt_rules(of);
    let options = rig.manager.options();
    assert_eq!((options.node_status_max_images, options.settle == std::time::Duration::from_secs(1234)), (7, false));
    let _ = rig.manager.garbage_collect().await;
    assert_eq!(rig.shelf.ids(), ["b"], "the kept one stays although space is short");
}
