//! Pulls of the puller and of a server on the board: places in the queue, those that wait, and how each pull ended.

use cri_api::{Error, Kind, PodSandboxConfig, PodSandboxMetadata, PullImageRequest};

use super::*;

fn by(wanted: Wanted, name: &str) -> Wanted {
    Wanted { by: WantedBy::Pod { namespace: "shop".to_owned(), name: name.to_owned() }, ..wanted }
}

#[tokio::test(start_paused = true)]
async fn places_waiters_and_ends_are_shown() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let plain = |image: &str| Wanted::new(ImageSpec::new(image));
    rig.start(by(plain("a:1"), "one")).await;
    rig.start(by(plain("a:1"), "two")).await;
    gate.until_waiting(1).await;
    rig.start(by(plain("b:1"), "three")).await;
    let left = rig.start(by(plain("d:1"), "four")).await;
    rig.start(Wanted { priority: 5, ..by(plain("missing:1"), "five") }).await;
    let shown: Vec<_> = rig
        .puller
        .board
        .pulls()
        .into_iter()
        .map(|pull| (pull.image, pull.step, pull.queue_position, pull.waiters))
        .collect();
    let queued = |image: &str, position| (image.to_owned(), PullStep::Queued, Some(position), 1);
    let want =
        [("a:1".to_owned(), PullStep::Pulling, None, 2), queued("b:1", 2), queued("d:1", 3), queued("missing:1", 1)];
    assert_eq!(shown, want);
    left.abort();
    settle().await;
    tokio::time::advance(Duration::from_secs(3)).await;
    gate.open();
    rig.outcomes().await;
    rig.puller.shutdown().await;
    assert_eq!(rig.puller.board.pulls(), []);
    let mut ended = rig.puller.board.ended();
    ended.sort_by(|one, other| one.image.cmp(&other.image));
    let ends: Vec<_> = ended.iter().map(|ended| (&*ended.image, ended.outcome, ended.queued_milliseconds)).collect();
    let want = [
        ("a:1", PullOutcome::Pulled, 0),
        ("b:1", PullOutcome::Pulled, 3000),
        ("d:1", PullOutcome::Cancelled, 0),
        ("missing:1", PullOutcome::Failed, 3000),
    ];
    assert_eq!(ends, want);
    assert_eq!(ended[0].wanted_by.len(), 2);
    assert!(
        ended[0].image_ref.is_some() && ended[3].message.is_some() && ended[3].cause.as_deref() == Some("not_found")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_finds_its_image_present_is_no_pull() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await;
    gate.until_waiting(1).await;
    let recheck: Recheck = Arc::new(|| Box::pin(async { Some("sha256:b".to_owned()) }));
    rig.start(Wanted { recheck: Some(recheck), ..Wanted::new(ImageSpec::new("b:1")) }).await;
    gate.open();
    rig.outcomes().await;
    rig.puller.shutdown().await;
    let outcomes: Vec<_> = rig.puller.board.ended().into_iter().map(|ended| (ended.image, ended.outcome)).collect();
    assert_eq!(outcomes, [("a:1".to_owned(), PullOutcome::Pulled), ("b:1".to_owned(), PullOutcome::Present)]);
}

#[tokio::test(start_paused = true)]
async fn pulls_of_a_server_are_shown_with_the_pod_that_they_name() {
    let (rig, board) = (Rig::new(free()), board());
    let service = WatchedPulls::new(Arc::new(rig.fake.clone()), board.clone(), WantedBy::Client);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let metadata = PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), ..PodSandboxMetadata::default() };
    let sandbox = Some(PodSandboxConfig { metadata, ..PodSandboxConfig::default() });
    let of_pod = service.pull_image(PullImageRequest { sandbox, ..PullImageRequest::new("a:1") });
    let of_client = service.pull_image(PullImageRequest::new("b:1"));
    let watch = async {
        gate.until_waiting(2).await;
        let shown: Vec<_> = board.pulls().into_iter().map(|pull| pull.wanted_by[0].to_string()).collect();
        gate.open();
        shown
    };
    let (one, other, shown) = tokio::join!(of_pod, of_client, watch);
    assert_eq!(shown, ["pod shop/web", "CRI client"]);
    assert!(one.is_ok() && other.is_ok());
    rig.fake.faults().fail(CallKind::PullImage, Error::new(Kind::Unavailable, "no route"));
    service.pull_image(PullImageRequest::new("c:1")).await.expect_err("it fails");
    let ends: Vec<_> = board.ended().into_iter().map(|ended| (ended.outcome, ended.message)).collect();
    let want =
        [(PullOutcome::Pulled, None), (PullOutcome::Pulled, None), (PullOutcome::Failed, Some("no route".to_owned()))];
    assert_eq!(ends, want);
}
