//! How calls end: answered, refused, too late, given up.

use std::time::Duration;

use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService};
use cri_api::{BeforeVisible, Error, ImageService as _, ImageSpec, Kind, PullImageRequest, Reason};
use oci::{RegistryAuth, Secret};
use tokio_util::task::TaskTracker;

use super::support::{Running, answers, soon};
use crate::client::{ClientOptions, connect_image_service};
use crate::pb;

const NAME: &str = "registry.test/app:1";

fn offering() -> FakeImageService {
    let fake = FakeImageService::new();
    fake.publish(NAME, &FakeImage::new("app"));
    fake
}

#[tokio::test]
async fn dropped_pull_stops_at_the_service() {
    let fake = offering();
    let gate = fake.faults().hold(CallKind::PullImage);
    let server = Running::fake(&fake);
    let client = server.client().await;
    let mut pull = client.pull_image(PullImageRequest::new(NAME));
    soon(async {
        tokio::select! {
            _ = &mut pull => panic!("the pull ended at a closed gate"),
            () = gate.until_waiting(1) => {}
        }
        drop(pull);
        gate.until_waiting(0).await;
    })
    .await;
    assert_eq!(fake.abandoned_pulls(), 1);
    // The connection lives on.
    fake.faults().clear(CallKind::PullImage);
    soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap();
}

#[tokio::test]
async fn empty_names_are_not_sent_for_removal() {
    let fake = offering();
    let server = Running::fake(&fake);
    let client = server.client().await;
    fake.forget_calls();
    let refused = soon(client.remove_image(&ImageSpec::default())).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::InvalidArgument);
    assert_eq!(fake.calls(), []);
}

#[tokio::test]
async fn pulls_stop_when_their_client_dies() {
    let fake = offering();
    let gate = fake.faults().hold(CallKind::PullImage);
    let server = Running::fake(&fake);
    // A runtime of its own, so that its end is the end of the client with its connection.
    let (endpoint, waiting) = (server.endpoint.clone(), gate.clone());
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = connect_image_service(&endpoint, ClientOptions::default()).await.unwrap();
            let pulls = futures::future::join_all((0..3).map(|_| client.pull_image(PullImageRequest::new(NAME))));
            tokio::select! {
                _ = pulls => panic!("a pull ended at a closed gate"),
                () = soon(waiting.until_waiting(3)) => {}
            }
        });
    })
    .await
    .unwrap();
    soon(gate.until_waiting(0)).await;
    assert_eq!(fake.abandoned_pulls(), 3);
}

#[tokio::test]
async fn calls_have_a_deadline_and_pulls_have_none() {
    let fake = offering();
    let server = Running::fake(&fake);
    let client =
        server.client_with(ClientOptions { request_timeout: Duration::from_millis(50), ..Default::default() }).await;
    let gate = fake.faults().hold(CallKind::PullImage);
    let pulling = client.clone();
    let pull = TaskTracker::new().spawn(async move { pulling.pull_image(PullImageRequest::new(NAME)).await });
    soon(gate.until_waiting(1)).await;
    let kinds = [CallKind::ListImages, CallKind::ImageStatus, CallKind::RemoveImage, CallKind::ImageFsInfo];
    for kind in kinds {
        let stuck = fake.faults().hold(kind);
        let spec = ImageSpec::new(NAME);
        let error = soon(async {
            match kind {
                CallKind::ListImages => client.list_images(None).await.map(drop),
                CallKind::ImageStatus => client.image_status(&spec, false).await.map(drop),
                CallKind::RemoveImage => client.remove_image(&spec).await,
                _ => client.image_fs_info().await.map(drop),
            }
        })
        .await
        .unwrap_err();
        assert_eq!(error.kind(), Kind::DeadlineExceeded, "{error}");
        assert!(error.message().ends_with("within 50ms"), "{error}");
        assert!(error.message().contains(&server.endpoint.to_string()), "{error}");
        soon(stuck.until_waiting(0)).await;
    }
    // Four timeouts have passed over it.
    gate.open();
    soon(pull).await.unwrap().unwrap();
}

// upstream: kuberuntime/TestListImagesWithError
// upstream: kuberuntime/TestGetImageRefWithError
// upstream: kuberuntime/TestRemoveImageWithError
#[tokio::test]
async fn errors_of_every_call_are_transferred() {
    let fake = offering();
    let server = Running::fake(&fake);
    let client = server.client().await;
    let error = Error::new(Kind::Unavailable, "test-error");
    for kind in [CallKind::ListImages, CallKind::ImageStatus, CallKind::RemoveImage] {
        fake.faults().fail(kind, error.clone());
    }
    assert_eq!(soon(client.list_images(None)).await.unwrap_err(), error);
    assert_eq!(soon(client.image_status(&ImageSpec::new(NAME), false)).await.unwrap_err(), error);
    assert_eq!(soon(client.remove_image(&ImageSpec::new(NAME))).await.unwrap_err(), error);
}

#[tokio::test]
async fn errors_are_transferred_completely() {
    let fake = offering();
    let server = Running::fake(&fake);
    let client = server.client().await;
    let cases = [
        (Kind::NotFound, "manifest \"x\" — 100 % gone\nand no more"),
        (Kind::Unauthenticated, "who?"),
        (Kind::ResourceExhausted, "disk full"),
        (Kind::DataLoss, "digest mismatch"),
        (Kind::Unknown, "RegistryFull: no"),
        (Kind::Unavailable, "RegistryUnavailable: connection refused"),
        (Kind::Unavailable, "registry answers 503"),
        (Kind::Cancelled, "given up"),
        (Kind::DeadlineExceeded, "too late"),
        (Kind::Unimplemented, "no"),
        (Kind::Internal, ""),
    ];
    for (kind, text) in cases {
        let named = text.starts_with("RegistryUnavailable");
        let with = |error: Error| if named { error.with_reason(Reason::RegistryUnavailable) } else { error };
        fake.faults().fail(CallKind::PullImage, with(Error::new(kind, text)));
        let error = soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap_err();
        let want = if text.is_empty() { "the peer answered Internal without a message" } else { text };
        assert_eq!(error, with(Error::new(kind, want)));
    }
    let busy = Error::new(Kind::ResourceExhausted, "429 Too Many Requests").with_retry_after(Duration::from_secs(90));
    fake.faults().fail(CallKind::PullImage, busy.clone());
    assert_eq!(soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap_err(), busy);
    fake.faults().fail(CallKind::PullImage, Error::new(Kind::Internal, "ü".repeat(100_000)));
    let error = soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap_err();
    assert_eq!(error, Error::new(Kind::Internal, "ü".repeat(2048)), "clipped, and still an answer");
    fake.faults().fail(CallKind::PullImage, Error::new(Kind::Unknown, "rpc error: code = Unknown desc = boom"));
    let error = soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap_err();
    assert_eq!(error, Error::new(Kind::Unknown, "boom"));
}

#[tokio::test]
async fn credentials_and_spec_arrive() {
    let fake = offering();
    let auth = RegistryAuth {
        username: "ada".into(),
        password: Secret::new("swordfish"),
        auth: Secret::new("a"),
        server_address: "registry.test".into(),
        identity_token: Secret::new("i"),
        registry_token: Secret::new("r"),
    };
    // The fake compares all of it.
    fake.require_auth(NAME, auth.clone());
    let server = Running::fake(&fake);
    let client = server.client().await;
    let mut image = ImageSpec::new(NAME);
    image.annotations.insert("k".into(), "v".into());
    image.user_specified_image = "app:1".into();
    image.runtime_handler = "kata".into();
    image.image_ref = "ref".into();
    let request = PullImageRequest { image: image.clone(), auth: Some(auth), ..Default::default() };
    soon(client.pull_image(request)).await.unwrap();
    assert!(fake.calls().contains(&Call::PullImage(image, Some("ada".into()))), "{:?}", fake.calls());
    let error = soon(client.pull_image(PullImageRequest::new(NAME))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthenticated);

    // Work that must be done before the image may appear is done before the runtime receives the pull.
    let calls = fake.calls().len();
    let before_visible = BeforeVisible::new(|| std::future::ready(Err(Error::new(Kind::Internal, "no ink"))));
    let request = PullImageRequest { before_visible, ..PullImageRequest::new(NAME) };
    assert_eq!(soon(client.pull_image(request)).await.unwrap_err().message(), "no ink");
    assert_eq!(fake.calls().len(), calls);
}

#[tokio::test]
async fn responses_without_required_fields_are_refused() {
    let image = |id: &str, size| pb::Image { id: id.into(), size, ..Default::default() };
    let cases = [(image("", 5), false), (image("sha256:1", 0), false), (image("sha256:1", 5), true)];
    for (image, good) in cases {
        let mut peer = answers();
        peer.status = Some(pb::ImageStatusResponse { image: Some(image), ..Default::default() });
        peer.image_ref = Some(String::new());
        let raw = peer.serve();
        let client = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap();
        let status = soon(client.image_status(&ImageSpec::new("x:1"), false)).await;
        match status {
            Ok(_) => assert!(good),
            Err(error) => assert_eq!((good, error.message()), (false, r#"Id or size of image "x:1" is not set"#)),
        }
        let error = soon(client.pull_image(PullImageRequest::new("x:1"))).await.unwrap_err();
        assert_eq!(error.message(), r#"imageRef of image "x:1" is not set"#);
        let error = soon(client.remove_image(&ImageSpec::new("x:1"))).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unimplemented);
    }
}
