//! Scenarios with a fake image service and a virtual clock: when it is called again, and how the wait ends.

use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{Error, Kind};
use image_manager::{LogRecorder, Options, PodRef};

use super::*;

const IMAGE: &str = "registry.example/app:1";

fn scene() -> (FakeImageService, Arc<ImageManager>, EnsureImageRequest, CancellationToken) {
    let service = FakeImageService::new();
    let manager = ImageManager::new(Arc::new(service.clone()), Arc::new(LogRecorder), Options::default());
    let mut request = EnsureImageRequest::new(IMAGE);
    request.pod = PodRef { uid: "u1".into(), name: "p".into(), ..PodRef::default() };
    (service, Arc::new(manager), request, CancellationToken::new())
}

fn down() -> Error {
    Error::new(Kind::Unavailable, "the registry is down")
}

fn pulls(service: &FakeImageService) -> usize {
    service.call_kinds().into_iter().filter(|kind| *kind == CallKind::PullImage).count()
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_when_its_time_has_come_and_not_before() {
    let (service, manager, request, ended) = scene();
    service.publish(IMAGE, &FakeImage::new("app"));
    service.faults().fail_times(CallKind::PullImage, 2, down());
    let begin = Instant::now();
    let end = one(&manager, ("pod/p", "c".to_owned()), &request, &ended).await;
    assert!(matches!(end, Some(Ok(ref ensured)) if ensured.pulled), "{end:?}");
    // Ten seconds after the first failure, twenty after the second: exactly at the end of each window.
    assert_eq!((pulls(&service), begin.elapsed().as_secs()), (3, 30));
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_the_wait() {
    let (service, manager, request, ended) = scene();
    service.publish(IMAGE, &FakeImage::new("app"));
    service.faults().fail_times(CallKind::PullImage, 1, down());
    let begin = Instant::now();
    let asked = one(&manager, ("pod/p", "c".to_owned()), &request, &ended);
    let reset = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(manager.reset_backoff(&image_manager::BackoffSelector::All), 1);
    };
    let (end, ()) = tokio::join!(asked, reset);
    assert!(matches!(end, Some(Ok(_))), "{end:?}");
    assert_eq!((pulls(&service), begin.elapsed().as_secs()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn cancellation_returns_the_last_error_at_once() {
    let (service, manager, request, ended) = scene();
    service.faults().fail(CallKind::PullImage, down());
    let asked = one(&manager, ("pod/p", "c".to_owned()), &request, &ended);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(25)).await;
        ended.cancel();
    };
    let begin = Instant::now();
    let (end, ()) = tokio::join!(asked, stop);
    let error = end.expect("it was asked").expect_err("it failed");
    assert_eq!((error.reason(), begin.elapsed().as_secs()), ("ImagePullBackOff", 25));
    assert!(error.message().contains("the registry is down"), "{}", error.message());

    let (service, manager, request, ended) = scene();
    let gate = service.faults().hold(CallKind::PullImage);
    let asked = one(&manager, ("pod/p", "c".to_owned()), &request, &ended);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(gate.waiting(), 1);
        ended.cancel();
    };
    let (end, ()) = tokio::join!(asked, stop);
    assert!(end.is_none(), "nothing is known yet: {end:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_become_good_is_not_asked_again() {
    let (_service, manager, mut request, ended) = scene();
    request.image = "Not A Name".into();
    let end = one(&manager, ("pod/p", "c".to_owned()), &request, &ended).await;
    assert_eq!(end.expect("asked").expect_err("refused").reason(), "InvalidImageName");
}

#[test]
fn pods_are_spread() {
    let request = |uid: &str| EnsureImageRequest {
        pod: PodRef { uid: uid.into(), ..PodRef::default() },
        ..EnsureImageRequest::new(IMAGE)
    };
    let times: std::collections::BTreeSet<_> = (0..100).map(|n| spread(&request(&n.to_string()), 0)).collect();
    assert!(times.len() > 90 && times.iter().all(|time| *time < PERIOD / 2), "{times:?}");
    assert_eq!(spread(&request("1"), 3), spread(&request("1"), 3));
}
