//! Upstream's table (`image_manager_test.go`), as far as it applies without back-off, throttling and pull records.

use cri_api::{Error, Kind};

use super::*;

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
