//! The manager on the fake service: upstream's table (`image_manager_test.go`) as far as it applies without back-off,
//! throttling and pull records; queues, cancellation, credentials, messages.

use std::time::Duration;

use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService, Gate};
use cri_api::{Error, Kind, PodSandboxConfig, ProgressSink};
use oci::RegistryAuth;
use tokio::task::{AbortHandle, JoinSet};

use super::*;
use crate::{ObjectRef, PodRef, PullReason, RingRecorder, UseLocalReason};

const SERIAL: PullerOptions = PullerOptions { serialize: true, max_parallel: None };
const PARALLEL: PullerOptions = PullerOptions { serialize: false, max_parallel: None };
const PULLERS: [PullerOptions; 3] = [SERIAL, PARALLEL, PullerOptions { serialize: false, max_parallel: Some(1) }];

/// A manager on a fake which has `present_image:latest`, and offers it and `missing_image:latest`.
struct Rig {
    fake: FakeImageService,
    ring: Arc<RingRecorder>,
    manager: Arc<ImageManager>,
    present_id: String,
}

impl Rig {
    fn new(puller: PullerOptions) -> Self {
        let fake = FakeImageService::new();
        let present_id = fake.preload("present_image", &FakeImage::new("present"));
        fake.publish("missing_image", &FakeImage::new("missing").sized(4096));
        let ring = Arc::new(RingRecorder::new(100));
        let events: Arc<dyn EventRecorder> = Arc::clone(&ring) as _;
        let options = Options { puller, ..Options::default() };
        let manager = Arc::new(ImageManager::new(Arc::new(fake.clone()), events, options));
        Self { fake, ring, manager, present_id }
    }

    async fn ensure(&self, request: EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        self.manager.ensure_image_exists(request).await
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.ring.events().iter().map(|e| e.event.reason).collect()
    }

    fn messages(&self) -> Vec<String> {
        self.ring.events().into_iter().map(|e| e.event.message).collect()
    }

    /// The names that were pulled, in order.
    fn pulled_names(&self) -> Vec<String> {
        let name = |call| match call {
            Call::PullImage(spec, _) => Some(spec.image),
            _ => None,
        };
        self.fake.calls().into_iter().filter_map(name).collect()
    }

    /// Starts a request and comes back when it waits: at the gate of the fake or in the queue.
    async fn start(
        &self,
        tasks: &mut JoinSet<Result<EnsuredImage, EnsureImageError>>,
        request: EnsureImageRequest,
    ) -> AbortHandle {
        let pulling = || self.reasons().iter().filter(|reason| **reason == "Pulling").count();
        let before = pulling();
        let manager = Arc::clone(&self.manager);
        let handle = tasks.spawn(async move { manager.ensure_image_exists(request).await });
        // The event of a pull is told in the same step in which it joins the queue.
        while pulling() == before {
            tokio::task::yield_now().await;
        }
        handle
    }
}

fn request(image: &str, policy: PullPolicy) -> EnsureImageRequest {
    let pod = PodRef { namespace: "default".into(), name: "pod".into(), uid: "uid-1".into(), ..PodRef::default() };
    EnsureImageRequest {
        object: Some(ObjectRef::container(&pod, "main")),
        pod,
        policy,
        ..EnsureImageRequest::new(image)
    }
}

struct Case {
    name: &'static str,
    image: &'static str,
    policy: PullPolicy,
    fault: Option<(CallKind, Error)>,
    rounds: usize,
    calls: &'static [CallKind],
    reason: Option<&'static str>,
    /// Part of the error's message; of the last event's message where there is none.
    says: &'static str,
    events: &'static [&'static str],
}

#[tokio::test]
async fn upstream_table() {
    use CallKind::{ImageStatus, PullImage};
    use PullPolicy::{Always, IfNotPresent, Never};
    let hex64 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let cases = [
        Case {
            name: "image missing, pull",
            image: "missing_image",
            policy: IfNotPresent,
            fault: None,
            rounds: 1,
            calls: &[ImageStatus, PullImage, ImageStatus],
            reason: None,
            says: "Successfully pulled image \"missing_image\" in 0s (0s including waiting). Image size: ",
            events: &["Pulling", "Pulled"],
        },
        Case {
            name: "image present, allow all, don't pull",
            image: "present_image",
            policy: IfNotPresent,
            fault: None,
            rounds: 3,
            calls: &[ImageStatus],
            reason: None,
            says: "Container image \"present_image\" already present on machine",
            events: &["Pulled"],
        },
        Case {
            name: "image present, pull",
            image: "present_image",
            policy: Always,
            fault: None,
            rounds: 3,
            calls: &[PullImage, ImageStatus],
            reason: None,
            says: "Successfully pulled image \"present_image\"",
            events: &["Pulling", "Pulled"],
        },
        Case {
            name: "image missing, never pull",
            image: "missing_image",
            policy: Never,
            fault: None,
            rounds: 3,
            calls: &[ImageStatus],
            reason: Some("ErrImageNeverPull"),
            says: "Container image \"missing_image\" is not present with pull policy of Never",
            events: &["ErrImageNeverPull"],
        },
        Case {
            name: "image present, never pull (not upstream)",
            image: "present_image",
            policy: Never,
            fault: None,
            rounds: 2,
            calls: &[ImageStatus],
            reason: None,
            says: "Container image \"present_image\" already present on machine",
            events: &["Pulled"],
        },
        Case {
            name: "image missing, pull if not present, fail on image inspect",
            image: "missing_image",
            policy: IfNotPresent,
            fault: Some((ImageStatus, Error::new(Kind::Unknown, "inspection failed"))),
            rounds: 3,
            calls: &[ImageStatus],
            reason: Some("ImageInspectError"),
            says: "Failed to inspect image \"missing_image\": inspection failed",
            events: &["InspectFailed"],
        },
        Case {
            name: "image missing, unable to fetch (without back-off)",
            image: "missing_image",
            policy: IfNotPresent,
            fault: Some((PullImage, Error::new(Kind::Unknown, "404"))),
            rounds: 3,
            calls: &[ImageStatus, PullImage],
            reason: Some("ErrImagePull"),
            says: "404",
            events: &["Pulling", "Failed"],
        },
        Case {
            name: "invalid image name, no pull",
            image: "FAILED_IMAGE",
            policy: Always,
            fault: None,
            rounds: 1,
            calls: &[],
            reason: Some("InvalidImageName"),
            says: "Failed to apply default image tag \"FAILED_IMAGE\": couldn't parse image name \"FAILED_IMAGE\": \
                   invalid reference format: repository name (library/FAILED_IMAGE) must be lowercase",
            events: &["InspectFailed"],
        },
        Case {
            name: "invalid image name with http, no pull",
            image: "http://url",
            policy: Always,
            fault: None,
            rounds: 1,
            calls: &[],
            reason: Some("InvalidImageName"),
            says: "Failed to apply default image tag \"http://url\": couldn't parse image name \"http://url\": \
                   invalid reference format",
            events: &["InspectFailed"],
        },
        Case {
            name: "invalid image name with sha256, no pull",
            image: hex64,
            policy: Always,
            fault: None,
            rounds: 1,
            calls: &[],
            reason: Some("InvalidImageName"),
            says: "cannot specify 64-byte hexadecimal strings",
            events: &["InspectFailed"],
        },
        Case {
            name: "image missing, SignatureValidationFailed (without back-off)",
            image: "typo_image",
            policy: IfNotPresent,
            fault: Some((PullImage, Error::new(Kind::Unknown, "SignatureValidationFailed"))),
            rounds: 2,
            calls: &[ImageStatus, PullImage],
            reason: Some("SignatureValidationFailed"),
            says: "image pull failed for typo_image because the signature validation failed",
            events: &["Pulling", "Failed"],
        },
    ];
    for puller in PULLERS {
        for case in &cases {
            run(puller, case).await;
        }
    }
}

async fn run(puller: PullerOptions, case: &Case) {
    let rig = Rig::new(puller);
    if let Some((kind, error)) = &case.fault {
        rig.fake.faults().fail(*kind, error.clone());
    }
    for round in 0..case.rounds {
        let what = format!("{} round {round} with {puller:?}", case.name);
        let events_before = rig.ring.events().last().map_or(0, |e| e.number);
        rig.fake.forget_calls();
        let result = rig.ensure(request(case.image, case.policy)).await;
        assert_eq!(rig.fake.call_kinds(), case.calls, "{what}");
        assert_eq!(result.as_ref().err().map(EnsureImageError::reason), case.reason, "{what}");
        let events = rig.ring.since(events_before);
        assert_eq!(events.iter().map(|e| e.event.reason).collect::<Vec<_>>(), case.events, "{what}");
        let last = &events.last().expect("every request ends with an event").event;
        assert_eq!(last.kind, if result.is_ok() { EventType::Normal } else { EventType::Warning }, "{what}");
        assert_eq!(last.object.field_path, "spec.containers{main}", "{what}");
        match result {
            Ok(image) => {
                assert!(image.message.contains(case.says), "{what}: {}", image.message);
                assert_eq!(image.message, last.message, "{what}");
                assert_eq!(image.pulled, case.calls.contains(&CallKind::PullImage), "{what}");
            }
            Err(error) => assert!(error.message().contains(case.says), "{what}: {}", error.message()),
        }
    }
}

#[tokio::test]
async fn answers_the_image_ref_that_the_runtime_uses() {
    let rig = Rig::new(SERIAL);
    let present = rig.ensure(request("present_image", PullPolicy::Never)).await.expect("present");
    assert_eq!((present.image_ref, present.pulled), (rig.present_id.clone(), false));
    let pulled = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("on offer");
    assert_eq!(pulled.image_ref, FakeImage::new("missing").sized(4096).id().to_string());
    assert!(pulled.pulled && pulled.size > Some(4096) && pulled.credential.is_none());
    // Another spelling of the same name is the same image.
    let again =
        rig.ensure(request("docker.io/library/missing_image:latest", PullPolicy::Never)).await.expect("present");
    assert_eq!(again.image_ref, pulled.image_ref);
}

#[tokio::test]
async fn the_runtime_is_sent_the_user_s_spelling_with_the_default_tag() {
    // Upstream TestApplyDefaultImageTag, TestPullAndListImageWithPodAnnotations and
    // TestPullAndListImageWithRuntimeHandlerInImageCriAPIFeatureGate.
    let rig = Rig::new(SERIAL);
    let image = FakeImage::new("root");
    rig.fake.publish("root:tag", &image);
    rig.fake.publish("root:latest", &image);
    let by_digest = format!("root@{}", image.digest());
    let by_both = format!("root:latest@{}", image.digest());
    let cases = [("root", "root:latest"), ("root:tag", "root:tag"), (&by_digest, &by_digest), (&by_both, &by_both)];
    for (given, sent) in cases {
        rig.fake.forget_calls();
        let mut request = request(given, PullPolicy::Always);
        request.pod.annotations.insert("kubernetes.io/example".into(), "yes".into());
        request.runtime_handler = "kata".into();
        request.sandbox = Some(PodSandboxConfig { hostname: "pod".into(), ..PodSandboxConfig::default() });
        rig.ensure(request).await.expect("on offer");
        let calls = rig.fake.calls();
        let Some(Call::PullImage(spec, None)) = calls.first() else { panic!("no anonymous pull: {calls:?}") };
        assert_eq!(spec.image, sent);
        assert_eq!(spec.user_specified_image, given);
        assert_eq!(spec.runtime_handler, "kata");
        assert_eq!(spec.annotations["kubernetes.io/example"], "yes");
    }
    let listed = rig.fake.list_images(None).await.expect("lists");
    let spec = listed.iter().find(|i| i.id == image.id().to_string()).and_then(|i| i.spec.clone()).expect("listed");
    assert_eq!((spec.runtime_handler.as_str(), spec.annotations.len()), ("kata", 1));
}

#[tokio::test]
async fn max_parallel_image_pulls_limit() {
    // Upstream TestMaxParallelImagePullsLimit.
    let rig = Rig::new(PullerOptions { serialize: false, max_parallel: Some(5) });
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
async fn a_caller_that_goes_away_leaves_the_queue() {
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
async fn a_caller_that_goes_away_stops_its_pull() {
    for puller in [SERIAL, PullerOptions { serialize: false, max_parallel: Some(1) }] {
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
async fn a_pull_that_waited_pulls_where_nobody_can_tell() {
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

#[tokio::test]
async fn two_pods_and_one_failure() {
    // Upstream TestParallelPodPullingTimeRecorderWithErr, as far as it is about pulls.
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
async fn messages_tell_both_times_and_the_size() {
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
async fn credentials_are_tried_in_order_until_one_works() {
    let rig = Rig::new(SERIAL);
    let auth = |user: &str| RegistryAuth::basic(user, format!("{user}-password"));
    rig.fake.require_auth("missing_image", auth("grace"));
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.credentials = vec![auth("ada"), auth("grace"), auth("rex")];
    let image = rig.ensure(asked).await.expect("the second one may");
    assert_eq!(image.credential, Some(1));
    let users: Vec<Option<String>> = rig
        .fake
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::PullImage(_, user) => Some(user),
            _ => None,
        })
        .collect();
    assert_eq!(users, [Some("ada".to_owned()), Some("grace".to_owned())]);
}

#[tokio::test]
async fn every_cause_is_kept_and_no_secret_told() {
    // Upstream TestPullWithSecretsWithError: one aggregate.
    let rig = Rig::new(SERIAL);
    rig.fake.require_auth("missing_image", RegistryAuth::basic("owner", "s3cret"));
    let mut asked = request("missing_image", PullPolicy::Always);
    asked.credentials = vec![RegistryAuth::basic("ada", "swordfish"), RegistryAuth::default()];
    let shown = format!("{asked:?}");
    let error = rig.ensure(asked).await.expect_err("nobody may");
    assert_eq!(error.reason(), "ErrImagePull");
    assert_eq!(
        error.message(),
        "[pull docker.io/library/missing_image:latest: access denied, \
         pull docker.io/library/missing_image:latest: authentication required]"
    );
    assert_eq!(rig.messages()[1], format!("Failed to pull image \"missing_image\": {}", error.message()));
    let EnsureImageError::Pull { source, .. } = &error else { panic!("a pull failed: {error:?}") };
    let kinds: Vec<(Option<usize>, Kind)> = source.attempts().iter().map(|a| (a.credential, a.error.kind())).collect();
    assert_eq!(kinds, [(Some(0), Kind::PermissionDenied), (Some(1), Kind::Unauthenticated)]);
    assert_eq!(error.kind(), Some(Kind::Unauthenticated));
    for text in [shown, format!("{error:?}"), format!("{:?}", rig.ring.events())] {
        assert!(!text.contains("swordfish") && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn explain_touches_nothing() {
    let rig = Rig::new(SERIAL);
    let local = Decision::UseLocal {
        image_ref: rig.present_id.clone(),
        why: UseLocalReason::PresentAndGranted(Grant::NoRecordsKept),
    };
    let cases = [
        ("present_image", PullPolicy::IfNotPresent, "use-local", Ok(local), 1),
        ("missing_image", PullPolicy::IfNotPresent, "pull", Ok(Decision::Pull(PullReason::NotPresent)), 1),
        ("present_image", PullPolicy::Always, "pull", Ok(Decision::Pull(PullReason::PolicyIsAlways)), 0),
        ("missing_image", PullPolicy::Never, "refuse", Ok(Decision::Refuse(RefuseReason::NotPresentAndNeverPulled)), 1),
        ("FAILED_IMAGE", PullPolicy::Always, "fail", Err("InvalidImageName"), 0),
    ];
    for (image, policy, word, decision, looks) in cases {
        rig.fake.forget_calls();
        let explanation = rig.manager.explain(request(image, policy)).await;
        assert_eq!(rig.fake.call_kinds(), vec![CallKind::ImageStatus; looks], "{image} {policy}");
        assert_eq!(explanation.word(), word);
        assert_eq!(explanation.sent.is_some(), decision.is_ok());
        assert_eq!(explanation.decision.as_ref().map_err(EnsureImageError::reason), decision.as_ref().map_err(|r| *r));
        assert!(explanation.to_string().starts_with(&format!("{image}: {word}: ")), "{explanation}");
    }
    rig.fake.faults().fail(CallKind::ImageStatus, Error::new(Kind::Unavailable, "gone"));
    let explanation = rig.manager.explain(request("present_image", PullPolicy::Never)).await;
    assert_eq!(explanation.why(), "ImageInspectError: Failed to inspect image \"present_image\": gone");
    assert_eq!(explanation.sent.as_deref(), Some("present_image:latest"));
    assert_eq!(rig.ring.events(), [], "no event is recorded");
}

#[tokio::test]
async fn without_an_object_nothing_is_recorded() {
    let rig = Rig::new(SERIAL);
    for (image, policy) in [("missing_image", PullPolicy::Always), ("FAILED_IMAGE", PullPolicy::Never)] {
        let mut request = request(image, policy);
        request.object = None;
        assert_eq!(rig.ensure(request).await.is_ok(), image == "missing_image");
    }
    assert_eq!(rig.ring.events(), []);
}

#[tokio::test]
async fn progress_reaches_the_caller_and_a_panic_frees_the_turn() {
    let rig = Rig::new(SERIAL);
    let mut first = request("missing_image", PullPolicy::Always);
    first.progress = ProgressSink::new(|_| panic!("a sink that fails"));
    let mut tasks = JoinSet::new();
    let manager = Arc::clone(&rig.manager);
    tasks.spawn(async move { manager.ensure_image_exists(first).await });
    assert!(tasks.join_next().await.expect("one task").is_err_and(|e| e.is_panic()));
    let next = tokio::time::timeout(Duration::from_secs(10), rig.ensure(request("missing_image", PullPolicy::Always)));
    next.await.expect("the turn is free again").expect("pulled");
}
