//! Answers of `explain`, which changes nothing.

use cri_api::{Error, Kind};

use super::*;
use crate::{PullReason, UseLocalReason};

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
async fn back_off_and_left_out_credentials_are_explained() {
    let rig = Rig::with_keyring(SERIAL);
    rig.fake.faults().fail(CallKind::PullImage, Error::new(Kind::NotFound, "404"));
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.secrets = vec![secret("a", "ada"), PullSecret { kind: "Opaque".into(), ..secret("b", "rex") }];
    for _ in 0..3 {
        rig.ensure(asked.clone()).await.expect_err("nothing to pull");
    }
    let events = rig.ring.events().len();
    rig.fake.forget_calls();
    let explanation = rig.manager.explain(&asked).await;
    assert_eq!(explanation.word(), "back-off");
    let want =
        "the image is not present, but not for another 1 s: ErrImagePull: 404 (secret default/b is of type Opaque";
    assert!(explanation.why().starts_with(want), "{}", explanation.why());
    assert_eq!(explanation.backoff.as_ref().map(|backoff| backoff.cause), Some(crate::Cause::NotFound));
    let sources: Vec<String> = explanation.candidates.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["secret default/a"]);
    assert_eq!(explanation.notes.len(), 1);
    assert_eq!(rig.fake.call_kinds(), [CallKind::ImageStatus]);
    assert_eq!(rig.ring.events().len(), events);
    // Other credentials are another matter.
    asked.secrets.truncate(1);
    assert_eq!(rig.manager.explain(&asked).await.word(), "pull");
    assert_eq!(rig.manager.backoff().len(), 1, "a look forgets nothing");
    // A secret that cannot be read is reported where it matters, and nowhere else.
    let broken = [(".dockerconfigjson".to_owned(), oci::Secret::new("{"))].into();
    asked.secrets = vec![PullSecret { data: broken, ..secret("a", "ada") }];
    assert_eq!(rig.manager.explain(&asked).await.word(), "fail");
    asked.policy = PullPolicy::Never;
    assert_eq!(rig.manager.explain(&asked).await.word(), "refuse");
}
