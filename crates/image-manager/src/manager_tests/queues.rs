//! Tests of the order of pulls, of callers that cancel, and of the recorded times.

use std::time::Duration;

use cri_api::testing::Gate;
use cri_api::{Error, Kind, ProgressSink};

use super::*;

// upstream: images/TestMaxParallelImagePullsLimit
#[tokio::test]
async fn max_parallel_image_pulls_limit() {
    let rig = Rig::new(PullerOptions { max_parallel: Some(5), ..PARALLEL });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    for _ in 0..7 {
        rig.start(&mut tasks, request("present_image", PullPolicy::Always)).await;
    }
    gate.until_waiting(5).await;
    assert_eq!(gate.arrived(), 5, "two wait for their turn");
    gate.let_through(2);
    gate.until_arrived(7).await;
    gate.until_waiting(5).await;
    assert_eq!(tasks.len() - finished(&mut tasks), 5);
    gate.open();
    while let Some(result) = tasks.join_next().await {
        result.expect("no panic").expect("pulled");
    }
    assert_eq!(rig.pulled_names().len(), 7);
}

fn finished<T: 'static>(tasks: &mut JoinSet<T>) -> usize {
    let mut count = 0;
    while tasks.try_join_next().is_some() {
        count += 1;
    }
    count
}

#[tokio::test]
async fn without_a_limit_all_pull_at_once() {
    let rig = Rig::new(PARALLEL);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    for _ in 0..40 {
        rig.start(&mut tasks, request("present_image", PullPolicy::Always)).await;
    }
    gate.until_waiting(40).await;
    gate.open();
    assert_eq!(tasks.join_all().await.iter().filter(|r| r.is_ok()).count(), 40);
}

/// Publishes images `queued-0` … and starts a request for each, one after the other.
async fn queue(
    rig: &Rig,
    tasks: &mut JoinSet<Result<EnsuredImage, EnsureImageError>>,
    count: usize,
) -> (Gate, Vec<AbortHandle>) {
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut handles = Vec::new();
    for i in 0..count {
        let name = format!("queued-{i}:v1");
        rig.fake.publish(&name, &FakeImage::new(&name));
        handles.push(rig.start(tasks, request(&name, PullPolicy::IfNotPresent)).await);
    }
    (gate, handles)
}

#[tokio::test]
async fn serial_pulls_run_one_by_one_in_order_of_arrival() {
    let rig = Rig::new(SERIAL);
    let mut tasks = JoinSet::new();
    let (gate, _) = queue(&rig, &mut tasks, 14).await;
    for i in 1..=14 {
        gate.until_arrived(i).await;
        assert_eq!(gate.waiting(), 1, "one pull at a time");
        gate.let_through(1);
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    let want: Vec<String> = (0..14).map(|i| format!("queued-{i}:v1")).collect();
    assert_eq!(rig.pulled_names(), want);
}

#[tokio::test]
async fn a_cancelled_caller_leaves_the_queue() {
    let rig = Rig::new(SERIAL);
    let mut tasks = JoinSet::new();
    let (gate, handles) = queue(&rig, &mut tasks, 4).await;
    gate.until_waiting(1).await;
    handles[1].abort();
    handles[2].abort();
    gate.open();
    let mut gone = 0;
    while let Some(result) = tasks.join_next().await {
        match result {
            Ok(result) => drop(result.expect("pulled")),
            Err(error) => gone += usize::from(error.is_cancelled()),
        }
    }
    assert_eq!(gone, 2);
    assert_eq!(rig.pulled_names(), ["queued-0:v1", "queued-3:v1"]);
    assert_eq!(rig.fake.abandoned_pulls(), 0, "who waited for a turn has not begun to pull");
}

#[tokio::test]
async fn a_cancelled_caller_stops_its_pull() {
    for puller in [SERIAL, PullerOptions { max_parallel: Some(1), ..PARALLEL }] {
        let rig = Rig::new(puller);
        let mut tasks = JoinSet::new();
        let (gate, handles) = queue(&rig, &mut tasks, 2).await;
        gate.until_waiting(1).await;
        handles[0].abort();
        // The next one gets the turn although nothing was let through.
        gate.until_arrived(2).await;
        assert_eq!(rig.fake.abandoned_pulls(), 1);
        gate.open();
        let results = [tasks.join_next().await, tasks.join_next().await].map(|r| r.expect("two tasks"));
        assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1, "only the one that went away");
        let status = rig.fake.image_status(&ImageSpec::new("queued-0:v1"), false).await.expect("works");
        assert_eq!(status.image, None);
    }
}

#[tokio::test]
async fn a_pull_that_waited_looks_again() {
    // Kubernetes #139841: a queue of requests for one image pulled it again and again.
    let rig = Rig::new(SERIAL);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        rig.start(&mut tasks, request("missing_image", PullPolicy::IfNotPresent)).await;
    }
    rig.start(&mut tasks, request("missing_image", PullPolicy::Always)).await;
    gate.open();
    let results: Vec<EnsuredImage> = tasks.join_all().await.into_iter().map(|r| r.expect("present")).collect();
    assert_eq!(rig.pulled_names().len(), 2, "the first, and the one that has to ask the registry");
    assert_eq!(results.iter().filter(|image| image.pulled).count(), 2);
    assert!(results.iter().all(|image| image.image_ref == results[0].image_ref));
    let present = "Container image \"missing_image\" already present on machine";
    assert_eq!(rig.messages().iter().filter(|message| *message == present).count(), 2);
}

#[tokio::test]
async fn a_waiting_pull_pulls_when_the_status_is_unknown() {
    let rig = Rig::new(SERIAL);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        rig.start(&mut tasks, request("missing_image", PullPolicy::IfNotPresent)).await;
    }
    rig.fake.faults().fail(CallKind::ImageStatus, Error::new(Kind::Internal, "no status"));
    gate.open();
    for result in tasks.join_all().await {
        let image = result.expect("pulled");
        assert_eq!(image.size, None);
        assert!(image.message.ends_with("Image size: 0 bytes."), "{}", image.message);
    }
    assert_eq!(rig.pulled_names().len(), 2);
}

// upstream: images/TestParallelPodPullingTimeRecorderWithErr
#[tokio::test]
async fn two_pods_and_one_failure() {
    let rig = Rig::new(PARALLEL);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.fake.faults().fail_times(CallKind::PullImage, 1, Error::new(Kind::Unavailable, "pull error"));
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        rig.start(&mut tasks, request("missing_image", PullPolicy::IfNotPresent)).await;
    }
    gate.open();
    assert_eq!(tasks.join_all().await.iter().filter(|r| r.is_err()).count(), 1);
    let retry = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("present by now");
    assert!(!retry.pulled);
    assert_eq!(rig.pulled_names().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn messages_have_both_times_and_the_size() {
    let rig = Rig::new(SERIAL);
    let mut tasks = JoinSet::new();
    let (gate, _) = queue(&rig, &mut tasks, 2).await;
    gate.until_waiting(1).await;
    tokio::time::advance(Duration::from_micros(62_500_900)).await;
    gate.let_through(1);
    gate.until_arrived(2).await;
    tokio::time::advance(Duration::from_millis(1200)).await;
    gate.open();
    let images = tasks.join_all().await;
    let size = images[0].as_ref().expect("pulled").size.expect("known");
    assert_eq!(
        rig.messages(),
        [
            "Pulling image \"queued-0:v1\"".to_owned(),
            "Pulling image \"queued-1:v1\"".to_owned(),
            format!(
                "Successfully pulled image \"queued-0:v1\" in 1m2.5s (1m2.5s including waiting). \
                 Image size: {size} bytes."
            ),
            format!(
                "Successfully pulled image \"queued-1:v1\" in 1.2s (1m3.7s including waiting). \
                 Image size: {size} bytes."
            ),
        ]
    );
    let timing = images[1].as_ref().expect("pulled").timing.expect("a pull has times");
    assert_eq!(timing.pulling, Duration::from_millis(1200));
}

#[tokio::test]
async fn progress_reaches_the_caller_and_a_panicking_sink_fails_no_pull() {
    let rig = Rig::new(SERIAL);
    let received = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let mut first = request("missing_image", PullPolicy::Always);
    first.progress = ProgressSink::new(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        panic!("a sink that fails");
    });
    rig.ensure(first).await.expect("pulled");
    assert_eq!(received.load(std::sync::atomic::Ordering::Relaxed), 1, "the sink receives nothing more");
    let next = tokio::time::timeout(Duration::from_secs(10), rig.ensure(request("missing_image", PullPolicy::Always)));
    next.await.expect("the turn is free again").expect("pulled");
}
