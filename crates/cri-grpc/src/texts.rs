//! The reasons that foreign runtimes report by the text of an error alone. The only place that parses such texts. Called by the
//! conversion of statuses.

use cri_api::{Kind, Reason};

/// Texts that containerd, CRI-O and the registries behind them write. The first line that fits decides: a refused request
/// for a token is worded as an access that is denied to something that may not exist.
const TEXTS: &[(Reason, &[&str])] = &[
    (Reason::RateLimited, &["429 too many requests", "toomanyrequests", "too many requests", "rate limit"]),
    (
        Reason::Unauthenticated,
        &[
            "401 unauthorized",
            "403 forbidden",
            "unauthorized:",
            "authentication required",
            "authorization failed",
            "insufficient_scope",
            "access denied",
            "access to the resource is denied",
            "no basic auth credentials",
            "incorrect username or password",
            "denied:",
        ],
    ),
    (
        Reason::NotFound,
        &[
            "manifest unknown",
            "name unknown",
            "404 not found",
            "repository does not exist",
            ": not found",
            "no such manifest",
        ],
    ),
    (
        Reason::InvalidContent,
        &[
            "unexpected commit digest",
            "unexpected commit size",
            "failed size validation",
            "digest mismatch",
            "digest did not match",
            "invalid checksum",
            "no match for platform",
            "unsupported media type",
            "failed to extract layer",
            "archive/tar: invalid",
            "gzip: invalid",
        ],
    ),
    (Reason::Deadline, &["context deadline exceeded", "no progress"]),
    (Reason::Cancelled, &["context canceled", "operation canceled"]),
    (
        Reason::Unreachable,
        &[
            "connection refused",
            "connection reset",
            "no such host",
            "i/o timeout",
            "tls handshake timeout",
            "network is unreachable",
            "no route to host",
            "server misbehaving",
            "temporary failure in name resolution",
            "broken pipe",
            "unexpected eof",
            "500 internal server error",
            "502 bad gateway",
            "503 service unavailable",
            "504 gateway",
        ],
    ),
];

/// Returns the reason that a message contains, where the kind is not enough.
pub(crate) fn reason(kind: Kind, message: &str) -> Option<Reason> {
    let words = [Reason::RegistryUnavailable, Reason::SignatureInvalid];
    let word = words.into_iter().find(|reason| reason.kubelet_word().is_some_and(|word| message.starts_with(word)));
    if word.is_some() {
        return word;
    }
    let decides = matches!(kind, Kind::Unimplemented | Kind::FailedPrecondition | Kind::Internal | Kind::Unknown);
    if !decides && kind != Kind::ResourceExhausted {
        return None;
    }
    let text = message.to_lowercase();
    let fits = |texts: &[&str]| texts.iter().any(|part| text.contains(part));
    if fits(&["no space left", "disk quota exceeded", "disk is full", "not enough space"]) {
        return Some(if text.contains("quota") { Reason::QuotaExceeded } else { Reason::DiskFull });
    }
    TEXTS.iter().find(|(_, texts)| decides && fits(texts)).map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_errors_are_classified_by_their_text() {
        let cases = [
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to resolve reference \"r.example/a:1\": \
                 r.example/a:1: not found",
                Some(Reason::NotFound),
            ),
            (
                "failed to pull and unpack image \"docker.io/a/b:1\": failed to resolve reference: pull access denied, \
                 repository does not exist or may require authorization: server message: insufficient_scope: \
                 authorization failed",
                Some(Reason::Unauthenticated),
            ),
            ("reading manifest latest in r.example/a: manifest unknown", Some(Reason::NotFound)),
            ("reading manifest 1 in r.example/a: unauthorized: authentication required", Some(Reason::Unauthenticated)),
            ("requested access to the resource is denied", Some(Reason::Unauthenticated)),
            ("unexpected status from HEAD request to https://r.example: 403 Forbidden", Some(Reason::Unauthenticated)),
            (
                "unexpected status code https://registry-1.docker.io/v2/: 429 Too Many Requests - Server message: \
                 toomanyrequests: You have reached your pull rate limit.",
                Some(Reason::RateLimited),
            ),
            (
                "failed to do request: Head \"https://r.example/\": dial tcp: lookup r.example: no such host",
                Some(Reason::Unreachable),
            ),
            (
                "pinging container registry r: Get \"https://r/v2/\": dial tcp 10.0.0.1:443: i/o timeout",
                Some(Reason::Unreachable),
            ),
            ("failed to copy: httpReadSeeker: 503 Service Unavailable", Some(Reason::Unreachable)),
            ("RegistryUnavailable: pull r.example/a: 404 Not Found", Some(Reason::RegistryUnavailable)),
            ("SignatureValidationFailed: no policy", Some(Reason::SignatureInvalid)),
            (
                "failed to copy: failed commit on ref: unexpected commit digest sha256:00, expected sha256:11",
                Some(Reason::InvalidContent),
            ),
            ("failed to extract layer sha256:00: write /x: no space left on device", Some(Reason::DiskFull)),
            ("failed to copy: context deadline exceeded", Some(Reason::Deadline)),
            ("rpc error: context canceled", Some(Reason::Cancelled)),
            ("disk quota exceeded", Some(Reason::QuotaExceeded)),
            ("something else", None),
        ];
        for (message, want) in cases {
            assert_eq!(reason(Kind::Unknown, message), want, "{message}");
        }
    }

    #[test]
    fn unambiguous_kind_needs_no_text() {
        let cases = [
            (Kind::Internal, "write /x: No space left on device (os error 28)", Some(Reason::DiskFull)),
            (Kind::ResourceExhausted, "no space left on the file system of /x", Some(Reason::DiskFull)),
            (Kind::ResourceExhausted, "429 Too Many Requests", None),
            (Kind::Unavailable, "manifest unknown", None),
            (Kind::Unavailable, "RegistryUnavailable: refused", Some(Reason::RegistryUnavailable)),
        ];
        for (kind, message, want) in cases {
            assert_eq!(reason(kind, message), want, "{kind} {message}");
        }
    }
}
