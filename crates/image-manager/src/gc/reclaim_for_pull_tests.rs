//! Tests of collections for pulls.

use super::*;
use crate::ReclaimSpace;
use crate::gc::manager::tests::{Rig, image, policy};

#[test]
fn the_shortage_of_a_pull() {
    let policy = GcPolicy { high_threshold_percent: 85, low_threshold_percent: 80, ..GcPolicy::default() };
    let space = |available| DiskSpace { capacity: 1000, available, ..DiskSpace::default() };
    // (available, needed, to be freed)
    let cases = [
        (500, Some(400), 0),
        (500, Some(700), 200),
        (100, Some(120), 100),
        (100, Some(300), 200),
        (100, None, 100),
        (300, None, 300),
        (0, None, 200),
    ];
    for (available, needed, want) in cases {
        let got = shortage(space(available), &policy, needed);
        assert_eq!((got.bytes, got.inodes), (want, 0), "{available} {needed:?}");
    }
}

#[tokio::test]
async fn space_is_freed_as_needed_and_never_by_removing_images_in_use() {
    let images = vec![image("0", 300), image("1", 300), image("2", 100)];
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 300, images);
    rig.use_image("1");
    let reclaimed = rig.manager.reclaim_space(Some(350)).await;
    assert_eq!((reclaimed.freed_bytes, reclaimed.removed, reclaimed.enough), (300, 1, true));
    assert_eq!(rig.shelf.ids(), ["1", "2"]);
    let reclaimed = rig.manager.reclaim_space(Some(900)).await;
    assert_eq!((reclaimed.freed_bytes, reclaimed.removed, reclaimed.enough), (100, 1, false));
    assert!(
        reclaimed.problem.as_deref().is_some_and(|text| text.contains("(freed 100 bytes)")),
        "{:?}",
        reclaimed.problem
    );
    assert_eq!(rig.shelf.ids(), ["1"]);
    assert_eq!(rig.events().len(), 1, "as the kubelet: {:?}", rig.events());
    let reclaimed = rig.manager.reclaim_space(Some(10)).await;
    assert_eq!((reclaimed.removed, reclaimed.enough), (0, true), "enough space is available already");
}

#[tokio::test]
async fn one_collection_serves_all_waiting_pulls() {
    let images = (0..10).map(|n| image(&n.to_string(), 100)).collect();
    let rig = Rig::new(policy(90, 50, 0, 0), 1000, 0, images);
    let ask = || rig.manager.reclaim_space(None);
    let results = tokio::join!(ask(), ask(), ask(), ask());
    for reclaimed in [&results.0, &results.1, &results.2, &results.3] {
        assert_eq!((reclaimed.freed_bytes, reclaimed.removed), (500, 5), "all get the result of the same collection");
    }
    assert_eq!(rig.shelf.ids().len(), 5);
    // A later request starts a collection of its own.
    assert_eq!(ask().await.removed, 5);
}

#[tokio::test]
async fn the_image_of_a_pull_is_held() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 0, vec![image("0", 500), image("1", 500)]);
    let hold = rig.manager.hold(&"r.example/0:1".into()).expect("it holds");
    rig.manager.reclaim_space(Some(1000)).await;
    assert_eq!(rig.shelf.ids(), ["0"]);
    let plan = rig.manager.plan(Some(crate::gc::Goal::AllUnused)).await.expect("a plan");
    assert_eq!(plan.images[0].why, "in use by a pull");
    assert_eq!(plan.images[0].last_used, None, "a pull is no use");
    drop(hold);
    rig.manager.reclaim_space(Some(1000)).await;
    assert!(rig.shelf.ids().is_empty());
}
