//! Reasons and messages: upstream `TestEvalCRIPullErr`, and what several credentials make of it.

use credentials::{NodeSource, SecretCoordinates};

use super::*;

/// The first attempt is made with a pull secret, the second with a file of the node, the third without credential.
fn pull(messages: &[&str]) -> EnsureImageError {
    let secret = SecretCoordinates {
        namespace: "shop".into(),
        name: "regcred".into(),
        uid: "u".into(),
        ..SecretCoordinates::default()
    };
    let sources = [Some(Source::Secret(secret)), Some(Source::Node(NodeSource::File("/c.json".into()))), None];
    // Reasons that the runtime client derives from these texts.
    let reasons = [
        ("RegistryUnavailable", Reason::RegistryUnavailable),
        ("SignatureValidationFailed", Reason::SignatureInvalid),
        ("403 Forbidden", Reason::Unauthenticated),
        ("manifest unknown", Reason::NotFound),
        ("503 Service Unavailable", Reason::Unreachable),
        ("429 Too Many Requests", Reason::RateLimited),
    ];
    let attempt = |(message, source): (&&str, Option<Source>)| {
        let error = Error::new(Kind::Unknown, *message);
        let reason = reasons.iter().find(|(text, _)| message.starts_with(text));
        Attempt { source, error: reason.map_or(error.clone(), |(_, reason)| error.with_reason(*reason)) }
    };
    let attempts = messages.iter().zip(sources).map(attempt).collect();
    EnsureImageError::Pull { image: "test".into(), source: PullFailure::new(attempts) }
}

#[test]
fn eval_cri_pull_err() {
    let cases = [
        ("upstream: images/TestEvalCRIPullErr/fallback error", "fallback", "ErrImagePull", "fallback"),
        (
            "upstream: images/TestEvalCRIPullErr/registry is unavailable",
            "RegistryUnavailable",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable",
        ),
        (
            "upstream: images/TestEvalCRIPullErr/registry is unavailable with additional error message",
            "RegistryUnavailable: foo",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable: foo",
        ),
        (
            "upstream: images/TestEvalCRIPullErr/signature is invalid",
            "SignatureValidationFailed",
            "SignatureValidationFailed",
            "image pull failed for test because the signature validation failed",
        ),
        (
            "upstream: images/TestEvalCRIPullErr/signature is invalid with additional error message (wrapped)",
            "SignatureValidationFailed: bar",
            "SignatureValidationFailed",
            "image pull failed for test because the signature validation failed: bar",
        ),
        ("named in the middle only", "x RegistryUnavailable", "ErrImagePull", "x RegistryUnavailable"),
    ];
    for (case, message, reason, want) in cases {
        let error = pull(&[message]);
        assert_eq!(error.reason(), reason, "{case}");
        assert_eq!(error.message(), want, "{case}");
    }
}

#[test]
fn several_causes_are_reported_with_their_sources() {
    let error = pull(&["denied", "not found", "denied"]);
    assert_eq!(error.reason(), "ErrImagePull");
    assert_eq!(error.message(), "[secret shop/regcred: denied, file /c.json: not found, without credential: denied]");
    let error = pull(&["denied", "SignatureValidationFailed: no policy"]);
    assert_eq!(error.reason(), "SignatureValidationFailed");
    assert_eq!(
        error.message(),
        "image pull failed for test because the signature validation failed: \
         [secret shop/regcred: denied, file /c.json: SignatureValidationFailed: no policy]"
    );
    let EnsureImageError::Pull { source, .. } = error else { panic!("a pull failed") };
    assert_eq!(source.attempts().len(), 2);
}

#[test]
fn left_out_credentials_are_reported_after_the_cause() {
    for (message, want) in [
        ("denied", "denied (secret shop/x is of type Opaque; no helper)"),
        (
            "RegistryUnavailable: foo",
            "image pull failed for test because the registry is unavailable: foo (secret shop/x is of type Opaque; no helper)",
        ),
    ] {
        let EnsureImageError::Pull { image, source } = pull(&[message]) else { panic!("a pull failed") };
        let source = source.with_notes(vec!["secret shop/x is of type Opaque".into(), "no helper".into()]);
        assert_eq!(EnsureImageError::Pull { image, source }.message(), want);
    }
}

#[test]
fn one_cause_of_several_is_what_matters_for_the_next_try() {
    let cases: [(&[&str], Cause); 6] = [
        (&["403 Forbidden"], Cause::Unauthenticated),
        (&["403 Forbidden", "manifest unknown"], Cause::NotFound),
        (&["503 Service Unavailable", "403 Forbidden"], Cause::Unavailable),
        (&["503 Service Unavailable", "403 Forbidden", "429 Too Many Requests"], Cause::RateLimited),
        (&["x", "y"], Cause::Other),
        (&[], Cause::Other),
    ];
    for (messages, want) in cases {
        assert_eq!(pull(messages).cause(), Some(want), "{messages:?}");
    }
    let slow = |seconds| Error::new(Kind::ResourceExhausted, "x").with_retry_after(Duration::from_secs(seconds));
    let attempts = [slow(3), slow(7), Error::new(Kind::NotFound, "x")].map(|error| Attempt { source: None, error });
    assert_eq!(PullFailure::new(attempts.into()).retry_after(), Some(Duration::from_secs(7)));
    let throttled = PullFailure::throttled();
    assert_eq!((throttled.cause(), throttled.to_string().as_str()), (Cause::Throttled, "pull QPS exceeded"));
}

#[test]
fn errors_name_the_operation_and_keep_the_cause() {
    let error = pull(&["denied"]);
    assert_eq!(error.to_string(), "pull image \"test\"");
    assert_eq!(std::error::Error::source(&error).expect("kept").to_string(), "denied");
    let never = EnsureImageError::ErrImageNeverPull { image: "test".into() };
    assert_eq!(never.message(), "Container image \"test\" is not present with pull policy of Never");
    assert_eq!((never.kind(), never.cause()), (None, None));
    let until = Instant::now();
    let last = "ErrImagePull: 404".to_owned();
    let held = EnsureImageError::BackOff { image: "test".into(), last, cause: Cause::Unavailable, until };
    assert_eq!((held.reason(), held.kind()), ("ImagePullBackOff", Some(Kind::Unavailable)));
    assert_eq!(held.message(), "Back-off pulling image \"test\": ErrImagePull: 404");
}
