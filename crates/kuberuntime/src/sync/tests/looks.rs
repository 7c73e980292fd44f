//! Observations of a pod: objects that are removed meanwhile, and the last messages of containers that have ended.

use cri_api::testing::CallKind;
use cri_api::{Error, Kind};
use serde_json::json;

use super::bench::Bench;

#[tokio::test(start_paused = true)]
async fn a_container_removed_between_list_and_status_is_left_out() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}]}));
    bench.settle().await;
    let (a, all) = (bench.id_of("a").await, bench.observe().await);
    assert_eq!(all.owner.name, "web-edge");
    assert!(all.containers.iter().all(|run| run.sandbox_id == all.sandboxes[0].id));
    let gate = bench.runtime.faults().hold_for(CallKind::ContainerStatus, "a");
    let (observed, ()) = tokio::join!(bench.observe(), async {
        gate.until_waiting(1).await;
        bench.runtime.take_container(&a);
        gate.open();
    });
    assert_eq!(observed.containers.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["b"]);
    let error = Error::new(Kind::Unavailable, "not now");
    bench.runtime.faults().fail_for(CallKind::ContainerStatus, "b", error);
    let failed = bench.pod_runtime.observe(&bench.pod.metadata.uid).await.expect_err("nobody can tell how it is");
    assert!(failed.what.starts_with("ask for container b ("), "{failed}");
    let nobody = bench.pod_runtime.observe("u-none").await.expect("nothing is there");
    assert_eq!((nobody.owner.uid.as_str(), nobody.containers.len()), ("u-none", 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_container_said_last_is_shown() {
    let bench = Bench::new(&json!({"restartPolicy": "Never", "containers": [
        {"name": "file", "image": "x:1"},
        {"name": "log", "image": "x:1", "terminationMessagePolicy": "FallbackToLogsOnError"},
    ]}));
    bench.settle().await;
    let (file, log) = (bench.id_of("file").await, bench.id_of("log").await);
    let mounts = bench.runtime.container_config(&file).expect("there").mounts;
    let mount = mounts.iter().find(|mount| mount.container_path == "/dev/termination-log").expect("mounted");
    std::fs::write(&mount.host_path, "out of cheese").expect("written");
    let log_path = bench.observe().await.latest("log").expect("there").log_path.clone();
    std::fs::write(&log_path, "2026-01-01T00:00:00Z stderr F panic: no cheese\n").expect("written");
    bench.runtime.exit(&file, 1);
    bench.runtime.exit(&log, 1);
    let observed = bench.observe().await;
    assert_eq!(observed.latest("file").map(|run| run.message.as_str()), Some("out of cheese"));
    assert_eq!(observed.latest("log").map(|run| run.message.as_str()), Some("panic: no cheese\n"));
}

#[tokio::test(start_paused = true)]
async fn a_started_pod_is_counted() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:2"}]}));
    bench.images.faults().delay(CallKind::PullImage, std::time::Duration::from_secs(7));
    // Both images come at once.
    assert_eq!(bench.good().await.waited_for_images.as_secs(), 7);
    assert_eq!(bench.good().await.waited_for_images.as_secs(), 0);
    let mut registry = prometheus_client::registry::Registry::default();
    bench.pod_runtime.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("written");
    for line in [
        "kubelet_started_pods_total 1",
        "kubelet_started_pods_errors_total 0",
        "kubelet_started_containers_total{container_type=\"container\"} 2",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
    }
}
