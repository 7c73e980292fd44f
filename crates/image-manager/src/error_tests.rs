//! Reasons and messages: upstream `TestEvalCRIPullErr`, and what several credentials make of it.

use super::*;

fn pull(messages: &[&str]) -> EnsureImageError {
    let attempt = |(i, message): (usize, &&str)| Attempt {
        credential: (messages.len() > 1).then_some(i),
        error: Error::new(Kind::Unknown, *message),
    };
    let attempts = messages.iter().enumerate().map(attempt).collect();
    EnsureImageError::Pull { image: "test".into(), source: PullFailure::new(attempts) }
}

#[test]
fn eval_cri_pull_err() {
    let cases = [
        ("fallback error", "fallback", "ErrImagePull", "fallback"),
        (
            "registry is unavailable",
            "RegistryUnavailable",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable",
        ),
        (
            "registry is unavailable with additional error message",
            "RegistryUnavailable: foo",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable: foo",
        ),
        (
            "signature is invalid",
            "SignatureValidationFailed",
            "SignatureValidationFailed",
            "image pull failed for test because the signature validation failed",
        ),
        (
            "signature is invalid with additional error message (wrapped)",
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
fn several_causes_are_all_told_and_hide_no_name() {
    let error = pull(&["denied", "not found", "denied"]);
    assert_eq!((error.reason(), error.message().as_str()), ("ErrImagePull", "[denied, not found]"));
    let error = pull(&["denied", "denied"]);
    assert_eq!(error.message(), "denied");
    let error = pull(&["denied", "SignatureValidationFailed: no policy"]);
    assert_eq!(error.reason(), "SignatureValidationFailed");
    assert_eq!(
        error.message(),
        "image pull failed for test because the signature validation failed: \
         [denied, SignatureValidationFailed: no policy]"
    );
    let EnsureImageError::Pull { source, .. } = error else { panic!("a pull failed") };
    assert_eq!(source.attempts().iter().map(|a| a.credential).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn errors_name_the_operation_and_keep_the_cause() {
    let error = pull(&["denied"]);
    assert_eq!(error.to_string(), "pull image \"test\"");
    assert_eq!(std::error::Error::source(&error).expect("kept").to_string(), "denied");
    let never = EnsureImageError::ErrImageNeverPull { image: "test".into() };
    assert_eq!(never.message(), "Container image \"test\" is not present with pull policy of Never");
    assert_eq!(never.kind(), None);
}
