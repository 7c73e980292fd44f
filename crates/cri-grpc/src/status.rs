//! gRPC status ↔ [`cri_api::Error`].
//!
//! A code becomes a kind and back. `Unknown` carries only its message: that is how Go runtimes hand the kubelet the
//! errors which it knows by the start of their text, so errors that start so are sent that way.

use std::time::Duration;

use cri_api::{Error, Kind, Reason};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::texts;

/// Prefix that a Go program adds when it passes an `Unknown` status on as text.
const UNKNOWN_PREFIX: &str = "rpc error: code = Unknown desc = ";
/// Longest message that is sent. It travels in a header; percent-encoded it must stay below the 16 KiB that common
/// clients take.
const MAX_MESSAGE: usize = 4096;

/// The trailer in which a gRPC server asks to be left alone, in milliseconds (gRPC proposal A6). A registry's
/// Retry-After travels in it.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The trailer in which this program's server says how many bytes must be free for the call to succeed.
const NEEDED_BYTES: &str = "imagelet-needed-bytes";

/// The trailer in which this program's server names the reason of an error.
const REASON: &str = "imagelet-reason";

/// The error as it is sent. Two reasons the kubelet knows by the start of the message; it compares the text, and only an
/// `Unknown` status reaches it without a prefix.
pub(crate) fn to_status(error: &Error) -> Status {
    let message = clip(error.message());
    let is_known_by_text = error.reason().is_some_and(|reason| reason.kubelet_word().is_some());
    let code = if is_known_by_text { Code::Unknown } else { code(error.kind()) };
    let mut status = Status::new(code, message);
    if let Some(after) = error.retry_after() {
        // Clients read it as an int32: a longer wait is cut, to some 24 days.
        let milliseconds = i32::try_from(after.as_millis()).unwrap_or(i32::MAX);
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from(milliseconds));
    }
    if let Some(bytes) = error.needed_bytes() {
        status.metadata_mut().insert(NEEDED_BYTES, MetadataValue::from(bytes));
    }
    if let Some(reason) = error.reason() {
        status.metadata_mut().insert(REASON, MetadataValue::from_static(reason.as_str()));
    }
    status
}

/// The error that a peer answered.
pub(crate) fn from_status(status: &Status) -> Error {
    let mut message = status.message();
    let mut kind = kind(status.code());
    if kind == Kind::Unknown {
        while let Some(rest) = message.strip_prefix(UNKNOWN_PREFIX) {
            message = rest;
        }
    }
    let reason = reason_of(status.metadata()).or_else(|| texts::reason(kind, message));
    if kind == Kind::Unknown && reason == Some(Reason::RegistryUnavailable) {
        kind = Kind::Unavailable;
    }
    let error = match message {
        "" => Error::new(kind, format!("the peer answered {kind} without a message")),
        _ => Error::new(kind, message),
    };
    let error = match reason {
        Some(reason) => error.with_reason(reason),
        None => error,
    };
    let error = match pushback(status.metadata()) {
        Some(after) => error.with_retry_after(after),
        None => error,
    };
    match needed_bytes(status.metadata()) {
        Some(bytes) => error.with_needed_bytes(bytes),
        None => error,
    }
}

fn reason_of(trailers: &MetadataMap) -> Option<Reason> {
    Reason::of_name(trailers.get(REASON)?.to_str().ok()?)
}

fn needed_bytes(trailers: &MetadataMap) -> Option<u64> {
    trailers.get(NEEDED_BYTES)?.to_str().ok()?.parse().ok()
}

/// How long the peer wants to be left alone. A negative number means «do not retry» to a channel that retries by
/// itself; it says no time.
fn pushback(trailers: &MetadataMap) -> Option<Duration> {
    let milliseconds: u64 = trailers.get(PUSHBACK)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_millis(milliseconds))
}

fn clip(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

fn code(kind: Kind) -> Code {
    match kind {
        Kind::InvalidArgument => Code::InvalidArgument,
        Kind::NotFound => Code::NotFound,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::PermissionDenied => Code::PermissionDenied,
        Kind::ResourceExhausted => Code::ResourceExhausted,
        Kind::FailedPrecondition => Code::FailedPrecondition,
        Kind::DataLoss => Code::DataLoss,
        Kind::Unavailable => Code::Unavailable,
        Kind::DeadlineExceeded => Code::DeadlineExceeded,
        Kind::Cancelled => Code::Cancelled,
        Kind::Unimplemented => Code::Unimplemented,
        Kind::Internal => Code::Internal,
        Kind::Unknown => Code::Unknown,
    }
}

fn kind(code: Code) -> Kind {
    match code {
        // OutOfRange is how this side's own decoder refuses a message that is too large.
        Code::OutOfRange => Kind::ResourceExhausted,
        Code::AlreadyExists => Kind::FailedPrecondition,
        // Aborted: a conflict with another call, which passes.
        Code::Aborted => Kind::Unavailable,
        _ => Kind::ALL.into_iter().find(|kind| self::code(*kind) == code).unwrap_or(Kind::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_kind_round_trips() {
        for kind in Kind::ALL {
            let error = Error::new(kind, "pull \"x\": 100 % — no\nmore");
            assert_eq!(from_status(&to_status(&error)), error);
        }
    }

    #[test]
    fn retry_delay_of_the_peer_is_returned() {
        for (sent, got) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_secs(90), Duration::from_secs(90)),
            (Duration::from_micros(1_500_700), Duration::from_millis(1500)),
            (Duration::MAX, Duration::from_millis(i32::MAX.unsigned_abs().into())),
        ] {
            for reason in [Reason::RateLimited, Reason::RegistryUnavailable] {
                let error = Error::new(Kind::Unavailable, "later").with_reason(reason).with_retry_after(sent);
                assert_eq!(from_status(&to_status(&error)).retry_after(), Some(got), "{sent:?}");
            }
        }
        assert!(to_status(&Error::new(Kind::Unavailable, "x")).metadata().is_empty());
        for text in ["-1", "", "soon", "99999999999999999999999"] {
            let mut status = Status::unavailable("x");
            status.metadata_mut().insert(PUSHBACK, text.parse().unwrap());
            assert_eq!(from_status(&status).retry_after(), None, "{text:?}");
        }
    }

    #[test]
    fn needed_bytes_round_trip() {
        for bytes in [0, 1 << 30, u64::MAX] {
            let error = Error::new(Kind::ResourceExhausted, "no space left").with_needed_bytes(bytes);
            let error = error.with_reason(Reason::DiskFull);
            assert_eq!(from_status(&to_status(&error)), error);
        }
        for text in ["-1", "", "much", "99999999999999999999999"] {
            let mut status = Status::resource_exhausted("x");
            status.metadata_mut().insert(NEEDED_BYTES, text.parse().unwrap());
            assert_eq!(from_status(&status).needed_bytes(), None, "{text:?}");
        }
    }

    #[test]
    fn every_code_has_a_kind() {
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let got = from_status(&Status::new(code, "x"));
            let want = match code {
                Code::Ok => "Unknown",
                Code::Aborted => "Unavailable",
                Code::AlreadyExists => "FailedPrecondition",
                Code::OutOfRange => "ResourceExhausted",
                Code::Cancelled => "Canceled",
                other => &format!("{other:?}"),
            };
            assert_eq!(got.kind().as_str(), want);
        }
    }

    #[test]
    fn unknown_errors_are_shown_without_a_prefix() {
        let cases = [
            ("boom", Kind::Unknown, "boom"),
            ("rpc error: code = Unknown desc = boom", Kind::Unknown, "boom"),
            ("rpc error: code = Unknown desc = rpc error: code = Unknown desc = boom", Kind::Unknown, "boom"),
            ("RegistryUnavailable: pinging: refused", Kind::Unavailable, "RegistryUnavailable: pinging: refused"),
            ("SignatureValidationFailed: no key", Kind::Unknown, "SignatureValidationFailed: no key"),
            ("", Kind::Unknown, "the peer answered Unknown without a message"),
        ];
        for (text, kind, want) in cases {
            let got = from_status(&Status::unknown(text));
            assert_eq!((got.kind(), got.message()), (kind, want), "{text}");
            let word = got.reason().and_then(Reason::kubelet_word);
            assert_eq!(word.is_some(), text.contains("Unavailable") || text.contains("Validation"), "{text}");
        }
        let kept = "rpc error: code = Unknown desc = boom";
        assert_eq!(from_status(&Status::internal(kept)).message(), kept, "only Unknown is stripped");
    }

    #[test]
    fn errors_known_by_text_are_sent_as_unknown() {
        for (reason, text) in [
            (Reason::RegistryUnavailable, "RegistryUnavailable: x"),
            (Reason::SignatureInvalid, "SignatureValidationFailed: x"),
        ] {
            let status = to_status(&Error::new(Kind::Unavailable, "x").with_reason(reason));
            assert_eq!((status.code(), status.message()), (Code::Unknown, text));
            assert_eq!(from_status(&status).reason(), Some(reason));
        }
        let status = to_status(&Error::new(Kind::Unavailable, "pull: RegistryUnavailable: x"));
        assert_eq!(status.code(), Code::Unavailable, "only at the start");
    }

    #[test]
    fn long_messages_are_clipped_between_characters() {
        let status = to_status(&Error::new(Kind::Internal, "é".repeat(5000)));
        assert_eq!(status.message().len(), 4096);
        let status = to_status(&Error::new(Kind::Internal, format!("x{}", "é".repeat(5000))));
        assert_eq!(status.message().len(), 4095);
    }
}
