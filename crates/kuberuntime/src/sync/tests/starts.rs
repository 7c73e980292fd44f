//! Starts: their order, their calls, their events, and the words in which they fail.

use cri_api::testing::CallKind;
use serde_json::json;

use super::bench::Bench;

#[tokio::test(start_paused = true)]
async fn a_pod_comes_up_in_the_kubelets_steps() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "first", "image": "x:1"}],
        "containers": [{"name": "a", "image": "x:1"}],
    }));
    bench.ends("first", 0);
    let report = bench.good().await;
    assert_eq!(report.starts.keys().collect::<Vec<_>>(), ["first"]);
    assert_eq!(
        bench.changes(),
        [
            (CallKind::RunPodSandbox, "web-edge".to_owned()),
            (CallKind::CreateContainer, "web-edge/first".to_owned()),
            (CallKind::StartContainer, "container-0002".to_owned()),
        ]
    );
    assert_eq!(bench.events(), ["first: Pulling", "first: Pulled", "first: Created", "first: Started"]);
    bench.good().await;
    assert_eq!(bench.events(), ["a: Pulled", "a: Created", "a: Started"]);
    assert_eq!(bench.status().await.phase.as_str(), "Running");
    bench.end(None).await.expect("ended");
    assert_eq!(bench.events(), ["a: Killing"]);
    bench.hands.remove_pod(&bench.observe().await).await.expect("removed");
    assert_eq!(bench.everything().await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_does_not_come_is_told_in_the_kubelets_words() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "gone:1"}]}));
    let report = bench.sync().await;
    assert_eq!(report.errors, ["start container b: ErrImagePull: pull docker.io/library/gone:1: not found"]);
    assert_eq!(bench.waits("b").await, ("ErrImagePull".into(), "pull docker.io/library/gone:1: not found".into()));
    let told = |event: &str| bench.events().into_iter().filter(|told| told.starts_with(event)).collect::<Vec<_>>();
    assert_eq!(
        told("b: "),
        [
            "b: Pulling",
            "b: Failed: Failed to pull image \"gone:1\": pull docker.io/library/gone:1: not found",
            "b: Failed: Error: ErrImagePull",
        ]
    );
    // One failure was counted, though it was asked for ahead: the window is the first one.
    bench.sync().await;
    let (reason, message) = bench.waits("b").await;
    assert_eq!(reason, "ImagePullBackOff");
    assert!(message.starts_with("Back-off pulling image \"gone:1\": ErrImagePull: pull"), "{message}");
    assert_eq!(bench.hands.parts().images.backoff()[0].failures, 1);
    assert_eq!(told("b: "), ["b: BackOff", "b: Failed: Error: ImagePullBackOff"]);
    bench.images.publish("gone:1", &cri_api::testing::FakeImage::new("back"));
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    bench.good().await;
    assert_eq!(told("b: "), ["b: Pulling", "b: Pulled", "b: Created", "b: Started"]);
    assert_eq!(bench.status().await.phase.as_str(), "Running");
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_left_created_is_made_anew_under_its_number() {
    let mut bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    let error = cri_api::Error::new(cri_api::Kind::Unavailable, "the connection is gone");
    bench.runtime.faults().lose_answers(CallKind::CreateContainer, 1, error);
    assert_eq!(bench.sync().await.errors.len(), 1);
    bench.kill_9();
    bench.good().await;
    assert_eq!(bench.everything().await, (vec![("a".to_owned(), cri_api::ContainerState::Running)], 1));
    assert_eq!(bench.counts().await, [0]);
    assert!(bench.root.path().join("links").read_dir().expect("links").count() == 1);
}
