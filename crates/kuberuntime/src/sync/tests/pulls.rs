//! Images ahead of their turn: pulled at the same time, across syncs, reported once, and cancelled with their pod.

use std::time::Duration;

use cri_api::testing::{CallKind, FakeImage};
use serde_json::json;
use tokio::time::Instant;

use super::bench::Bench;

#[tokio::test(start_paused = true)]
async fn images_come_while_an_init_container_runs() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "i", "image": "here:1"}],
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:2"}, {"name": "c", "image": "x:2"}],
    }));
    bench.images.preload("here:1", &FakeImage::new("here"));
    let pulls = bench.images.faults().hold(CallKind::PullImage);
    assert_eq!(bench.good().await.starts.len(), 1);
    pulls.until_waiting(2).await;
    // Another sync starts none of the pulls again.
    assert!(bench.good().await.actions.is_empty());
    pulls.open();
    bench.runtime.exit(&bench.id_of("i").await, 0);
    bench.good().await;
    assert_eq!(pulls.arrived(), 2);
    let events = bench.events();
    for (name, want) in [("a", ["Pulling", "Pulled"]), ("b", ["Pulling", "Pulled"]), ("c", ["Pulled", "Created"])] {
        let of = events.iter().filter_map(|event| event.strip_prefix(&format!("{name}: "))).collect::<Vec<_>>();
        assert_eq!(of[..2], want, "{name}: {events:?}");
        assert_eq!(of.iter().filter(|event| **event == "Pulled").count(), 1, "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_ends_a_pod_waits_for_no_image() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:2"}]}));
    let pulls = bench.images.faults().hold(CallKind::PullImage);
    let begun = Instant::now();
    let (report, ()) = tokio::join!(bench.sync(), async {
        pulls.until_waiting(2).await;
        bench.stop.cancel();
    });
    assert!(report.cancelled && report.starts.is_empty() && report.errors.is_empty(), "{report:?}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    bench.end(None).await.expect("ended");
    // The images are not needed any more.
    pulls.until_waiting(0).await;
    bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
    assert_eq!(bench.everything().await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_fails_is_counted_once_for_a_pod() {
    let bench =
        Bench::new(&json!({"containers": [{"name": "a", "image": "gone:1"}, {"name": "b", "image": "gone:1"}]}));
    let report = bench.sync().await;
    assert_eq!(bench.waits("a").await.0, "ErrImagePull");
    assert_eq!(bench.waits("b").await.0, "ImagePullBackOff");
    assert_eq!(report.errors.len(), 2);
    assert_eq!(bench.pod_runtime.parts().images.backoff()[0].failures, 1);
    assert_eq!(bench.images.call_kinds().iter().filter(|kind| **kind == CallKind::PullImage).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prefetched_image_that_was_removed_is_requested_again() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "i", "image": "x:1"}], "containers": [{"name": "a", "image": "x:2"}],
    }));
    bench.good().await;
    bench.rest(1).await;
    let images = bench.pod_runtime.parts().images.image(&"x:2".into()).await.expect("asked");
    let id = images.expect("it came").id;
    use cri_api::ImageService as _;
    bench.images.remove_image(&id.as_str().into()).await.expect("removed");
    bench.runtime.exit(&bench.id_of("i").await, 0);
    bench.good().await;
    assert_eq!(bench.status().await.phase.as_str(), "Running");
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_restarted_asks_for_no_image() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x"}]}));
    bench.ends("a", 1);
    for _ in 0..5 {
        bench.good().await;
        bench.pass(1);
    }
    // Its first start, its first restart, which waits for nothing, and none in its back-off.
    assert_eq!(bench.images.call_kinds().iter().filter(|kind| **kind == CallKind::PullImage).count(), 2);
    assert_eq!(bench.waits("a").await.0, "CrashLoopBackOff");
    assert!(
        bench.events().iter().any(|event| event.starts_with("a: BackOff: Back-off restarting failed container a in"))
    );
}
