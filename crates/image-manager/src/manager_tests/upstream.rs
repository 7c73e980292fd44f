//! Upstream's table (`image_manager_test.go`): each row runs by three pullers, a second apart, with a back-off of 1 s
//! to 60 s.

use cri_api::{Error, Kind, Reason};

use super::*;

/// The effects of a request.
struct Step {
    calls: &'static [CallKind],
    /// `None`: it succeeds.
    reason: Option<&'static str>,
    events: &'static [&'static str],
    /// Part of the message.
    says: &'static str,
}

struct Case {
    name: &'static str,
    image: &'static str,
    policy: PullPolicy,
    fault: Option<(CallKind, Error)>,
    limits: Option<(f64, u32)>,
    steps: Vec<Step>,
    /// Counts of each request: whether the image is present, and whether a pull is required.
    counted: (&'static str, &'static str),
}

const LOOK: &[CallKind] = &[CallKind::ImageStatus];
const PULL: &[CallKind] = &[CallKind::PullImage, CallKind::ImageStatus];
const LOOK_AND_PULL: &[CallKind] = &[CallKind::ImageStatus, CallKind::PullImage, CallKind::ImageStatus];
const LOOK_AND_FAIL: &[CallKind] = &[CallKind::ImageStatus, CallKind::PullImage];

fn step(
    calls: &'static [CallKind],
    reason: Option<&'static str>,
    events: &'static [&'static str],
    says: &'static str,
) -> Step {
    Step { calls, reason, events, says }
}

/// The same three times.
fn thrice(make: impl Fn() -> Step) -> Vec<Step> {
    vec![make(), make(), make()]
}

#[expect(clippy::too_many_lines, reason = "one table")]
fn cases() -> Vec<Case> {
    use PullPolicy::{Always, IfNotPresent, Never};
    let case = |name, image, policy, steps| {
        let counted = match (policy, image) {
            (Always, _) => ("unknown", "true"),
            (IfNotPresent, "present_image") => ("true", "false"),
            (IfNotPresent, _) => ("false", "true"),
            (Never, "present_image") => ("true", "false"),
            (Never, _) => ("false", "unknown"),
        };
        Case { name, image, policy, fault: None, limits: None, steps, counted }
    };
    let unknown = ("unknown", "unknown");
    let invalid = |says| vec![step(&[], Some("InvalidImageName"), &["InspectFailed"], says)];
    vec![
        case(
            "upstream: images/TestImagePullPrecheck/image missing, pull",
            "missing_image",
            IfNotPresent,
            vec![step(
                LOOK_AND_PULL,
                None,
                &["Pulling", "Pulled"],
                "Successfully pulled image \"missing_image\" in 0s (0s including waiting). Image size: ",
            )],
        ),
        case(
            "upstream: images/TestImagePullPrecheck/image present, allow all, don't pull",
            "present_image",
            IfNotPresent,
            thrice(|| step(LOOK, None, &["Pulled"], "Container image \"present_image\" already present on machine")),
        ),
        case(
            "upstream: images/TestImagePullPrecheck/image present, pull",
            "present_image",
            Always,
            thrice(|| step(PULL, None, &["Pulling", "Pulled"], "Successfully pulled image \"present_image\"")),
        ),
        case(
            "upstream: images/TestImagePullPrecheck/image missing, never pull",
            "missing_image",
            Never,
            thrice(|| {
                let says = "Container image \"missing_image\" is not present with pull policy of Never";
                step(LOOK, Some("ErrImageNeverPull"), &["ErrImageNeverPull"], says)
            }),
        ),
        case(
            "image present, never pull (not upstream)",
            "present_image",
            Never,
            thrice(|| step(LOOK, None, &["Pulled"], "Container image \"present_image\" already present on machine")),
        ),
        Case {
            fault: Some((CallKind::ImageStatus, Error::new(Kind::Unknown, "inspection failed"))),
            counted: unknown,
            ..case(
                "upstream: images/TestImagePullPrecheck/image missing, pull if not present, fail on image inspect",
                "missing_image",
                IfNotPresent,
                thrice(|| {
                    let says = "Failed to inspect image \"missing_image\": inspection failed";
                    step(LOOK, Some("ImageInspectError"), &["InspectFailed"], says)
                }),
            )
        },
        Case {
            fault: Some((CallKind::PullImage, Error::new(Kind::Unknown, "404"))),
            ..case(
                "upstream: images/TestImagePullPrecheck/image missing, unable to fetch",
                "missing_image",
                IfNotPresent,
                {
                    let pull = || step(LOOK_AND_FAIL, Some("ErrImagePull"), &["Pulling", "Failed"], "404");
                    let says = "Back-off pulling image \"missing_image\": ErrImagePull: 404";
                    let wait = || step(LOOK, Some("ImagePullBackOff"), &["BackOff"], says);
                    vec![pull(), pull(), wait(), pull(), wait(), wait()]
                },
            )
        },
        Case {
            limits: Some((400.0, 600)),
            ..case(
                "upstream: images/TestImagePullPrecheck/image present and qps>0, pull",
                "present_image",
                Always,
                thrice(|| step(PULL, None, &["Pulling", "Pulled"], "Successfully pulled image \"present_image\"")),
            )
        },
        Case {
            limits: Some((2000.0, 0)),
            ..case(
                "upstream: images/TestImagePullPrecheck/image present and excessive qps rate, pull",
                "present_image",
                Always,
                {
                    let refused = || step(&[], Some("ErrImagePull"), &["Pulling", "Failed"], "pull QPS exceeded");
                    let says = "Back-off pulling image \"present_image\": ErrImagePull: pull QPS exceeded";
                    vec![refused(), refused(), step(&[], Some("ImagePullBackOff"), &["BackOff"], says)]
                },
            )
        },
        Case {
            counted: unknown,
            ..case(
                "upstream: images/TestImagePullPrecheck/invalid image name, no pull",
                "FAILED_IMAGE",
                Always,
                invalid(
                    "Failed to apply default image tag \"FAILED_IMAGE\": couldn't parse image name \"FAILED_IMAGE\": \
                     invalid reference format: repository name (library/FAILED_IMAGE) must be lowercase",
                ),
            )
        },
        Case {
            counted: unknown,
            ..case(
                "upstream: images/TestImagePullPrecheck/invalid image name with http, no pull",
                "http://url",
                Always,
                invalid(
                    "Failed to apply default image tag \"http://url\": couldn't parse image name \"http://url\": \
                     invalid reference format",
                ),
            )
        },
        Case {
            counted: unknown,
            ..case(
                "upstream: images/TestImagePullPrecheck/invalid image name with sha256, no pull",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                Always,
                invalid("cannot specify 64-byte hexadecimal strings"),
            )
        },
        Case {
            fault: Some((
                CallKind::PullImage,
                Error::new(Kind::Unknown, "SignatureValidationFailed").with_reason(Reason::SignatureInvalid),
            )),
            ..case(
                "upstream: images/TestImagePullPrecheck/image missing, SignatureValidationFailed",
                "typo_image",
                IfNotPresent,
                {
                    let failed = "image pull failed for typo_image because the signature validation failed";
                    let events = &["Pulling", "Failed"];
                    let pull = || step(LOOK_AND_FAIL, Some("SignatureValidationFailed"), events, failed);
                    let says = "Back-off pulling image \"typo_image\": SignatureValidationFailed: image pull failed for \
                                typo_image because the signature validation failed";
                    let wait = || step(LOOK, Some("ImagePullBackOff"), &["BackOff"], says);
                    vec![pull(), pull(), wait(), pull(), wait()]
                },
            )
        },
    ]
}

// upstream: images/TestSerializedPuller
#[tokio::test(start_paused = true)]
async fn serialized_puller() {
    run_all(SERIAL).await;
}

// upstream: images/TestParallelPuller
#[tokio::test(start_paused = true)]
async fn parallel_puller() {
    run_all(PARALLEL).await;
}

#[tokio::test(start_paused = true)]
async fn parallel_puller_with_a_limit() {
    run_all(PullerOptions { max_parallel: Some(1), ..PARALLEL }).await;
}

/// Every case without records, and with records whose policy allows everything.
async fn run_all(puller: PullerOptions) {
    for case in cases() {
        let puller = case.limits.map_or(puller, |(qps, burst)| PullerOptions { qps, burst, ..puller });
        let options = || Options { puller, backoff: UPSTREAM, ..Options::default() };
        run(&Rig::with(options()), &case, "without records").await;
        run(&Rig::with_records(options(), VerificationPolicy::NeverVerify).await, &case, "with records").await;
    }
}

// upstream: images/TestEnsureImageRequestsMetrics
#[tokio::test(start_paused = true)]
async fn every_request_is_counted_once() {
    for case in cases() {
        let puller = case.limits.map_or(SERIAL, |(qps, burst)| PullerOptions { qps, burst, ..SERIAL });
        let rig = Rig::with(Options { puller, backoff: UPSTREAM, ..Options::default() });
        run(&rig, &case, "for the metrics").await;
        let policy = case.policy.as_str().to_lowercase();
        let (present, required) = case.counted;
        let want = (policy, present.to_owned(), required.to_owned(), case.steps.len() as u64);
        assert_eq!(rig.samples(), [want], "{}", case.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_is_counted() {
    let rig = Rig::new(SERIAL);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    rig.start(&mut tasks, request("missing_image", PullPolicy::IfNotPresent)).await;
    gate.until_waiting(1).await;
    assert_eq!(rig.samples(), []);
    tasks.shutdown().await;
    assert_eq!(rig.samples(), [("ifnotpresent".to_owned(), "false".to_owned(), "true".to_owned(), 1)]);
}

async fn run(rig: &Rig, case: &Case, how: &str) {
    if let Some((kind, error)) = &case.fault {
        rig.fake.faults().fail(*kind, error.clone());
    }
    for (index, step) in case.steps.iter().enumerate() {
        let what = format!("{} step {index} {how}", case.name);
        let events_before = rig.ring.events().last().map_or(0, |e| e.number);
        rig.fake.forget_calls();
        let result = rig.ensure(request(case.image, case.policy)).await;
        assert_eq!(rig.fake.call_kinds(), step.calls, "{what}");
        assert_eq!(result.as_ref().err().map(EnsureImageError::reason), step.reason, "{what}");
        let events = rig.ring.since(events_before);
        assert_eq!(events.iter().map(|e| e.event.reason).collect::<Vec<_>>(), step.events, "{what}");
        let last = &events.last().expect("every request ends with an event").event;
        let normal = result.is_ok() || last.reason == "BackOff";
        assert_eq!(last.kind, if normal { EventType::Normal } else { EventType::Warning }, "{what}");
        assert_eq!(last.object.field_path, "spec.containers{main}", "{what}");
        match result {
            Ok(image) => {
                assert!(image.message.contains(step.says), "{what}: {}", image.message);
                assert_eq!(image.message, last.message, "{what}");
                assert_eq!(image.pulled, step.calls.contains(&CallKind::PullImage), "{what}");
            }
            Err(error) => assert!(error.message().contains(step.says), "{what}: {}", error.message()),
        }
    }
}
