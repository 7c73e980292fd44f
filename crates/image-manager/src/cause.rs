//! [`Cause`]: what a pull failed of, in words that back-off and metrics can act on. A table over an error's kind; for
//! runtimes that name no kind, over their text. It decides nothing; back-off, the puller and the metrics ask it.

use std::fmt;

use cri_api::{Error, Kind};

/// What a pull failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The registry does not know the image.
    NotFound,
    /// The registry does not give it to this credential.
    Unauthenticated,
    /// The registry wants fewer requests.
    RateLimited,
    /// The registry, or the way to it, does not work at the moment.
    Unavailable,
    /// The disk is full.
    DiskFull,
    /// What came is not what was promised, or nothing that can be used.
    InvalidContent,
    /// The signature is missing or wrong.
    SignatureInvalid,
    /// The pull was given up.
    Cancelled,
    /// It made no progress, or took too long.
    Deadline,
    /// It was refused here, by `registryPullQPS`.
    Throttled,
    /// Anything else.
    Other,
}

impl Cause {
    /// Every cause, for whoever prepares one place for each.
    pub const ALL: [Self; 11] = [
        Self::NotFound,
        Self::Unauthenticated,
        Self::RateLimited,
        Self::Unavailable,
        Self::DiskFull,
        Self::InvalidContent,
        Self::SignatureInvalid,
        Self::Cancelled,
        Self::Deadline,
        Self::Throttled,
        Self::Other,
    ];

    /// The cause of this word, as [`Cause::as_str`] makes it.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }

    /// What an error of an image service says about its cause.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        let message = error.message();
        if error.needed_bytes().is_some() {
            return Self::DiskFull;
        }
        match error.kind() {
            Kind::NotFound => Self::NotFound,
            Kind::Unauthenticated | Kind::PermissionDenied => Self::Unauthenticated,
            Kind::ResourceExhausted if error.retry_after().is_some() => Self::RateLimited,
            Kind::ResourceExhausted if is_disk_full(&message.to_lowercase()) => Self::DiskFull,
            Kind::ResourceExhausted => Self::RateLimited,
            Kind::Unavailable => Self::Unavailable,
            Kind::DeadlineExceeded => Self::Deadline,
            Kind::Cancelled => Self::Cancelled,
            Kind::DataLoss | Kind::InvalidArgument => Self::InvalidContent,
            Kind::Unimplemented | Kind::FailedPrecondition | Kind::Internal | Kind::Unknown => {
                if error.retry_after().is_some() {
                    return Self::RateLimited;
                }
                of_text(message)
            }
        }
    }

    /// One word for it, in lower case with underscores: label of metrics, and what `imagelet backoff` prints.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Unauthenticated => "unauthenticated",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::DiskFull => "disk_full",
            Self::InvalidContent => "invalid_content",
            Self::SignatureInvalid => "signature_invalid",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Throttled => "throttled",
            Self::Other => "other",
        }
    }

    /// Whether it passes by itself, and then for every pod at once.
    #[must_use]
    pub fn passes_by_itself(self) -> bool {
        match self {
            Self::Unavailable | Self::DiskFull | Self::Cancelled | Self::Deadline | Self::Throttled => true,
            Self::NotFound
            | Self::Unauthenticated
            | Self::RateLimited
            | Self::InvalidContent
            | Self::SignatureInvalid
            | Self::Other => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What containerd, CRI-O and the registries behind them write. The first line that fits decides: a refused request
/// for a token is worded as an access that is denied to something that may not exist.
const TEXTS: &[(Cause, &[&str])] = &[
    (Cause::RateLimited, &["429 too many requests", "toomanyrequests", "too many requests", "rate limit"]),
    (
        Cause::Unauthenticated,
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
        Cause::NotFound,
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
        Cause::InvalidContent,
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
    (Cause::Deadline, &["context deadline exceeded", "no progress"]),
    (Cause::Cancelled, &["context canceled", "operation canceled"]),
    (
        Cause::Unavailable,
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

fn of_text(message: &str) -> Cause {
    if message.starts_with("RegistryUnavailable") {
        return Cause::Unavailable;
    }
    if message.starts_with("SignatureValidationFailed") {
        return Cause::SignatureInvalid;
    }
    let text = message.to_lowercase();
    if is_disk_full(&text) {
        return Cause::DiskFull;
    }
    let fits = |texts: &[&str]| texts.iter().any(|part| text.contains(part));
    TEXTS.iter().find(|(_, texts)| fits(texts)).map_or(Cause::Other, |(cause, _)| *cause)
}

fn is_disk_full(lower_case: &str) -> bool {
    ["no space left", "disk quota exceeded", "disk is full", "not enough space"].iter().any(|t| lower_case.contains(t))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn kinds_decide_first() {
        let cases = [
            (Kind::NotFound, "x", Cause::NotFound),
            (Kind::Unauthenticated, "x", Cause::Unauthenticated),
            (Kind::PermissionDenied, "x", Cause::Unauthenticated),
            (Kind::ResourceExhausted, "429 Too Many Requests", Cause::RateLimited),
            (Kind::ResourceExhausted, "no space left on the file system of /var/lib/imagelet", Cause::DiskFull),
            (Kind::Unavailable, "manifest unknown", Cause::Unavailable),
            (Kind::DeadlineExceeded, "x", Cause::Deadline),
            (Kind::Cancelled, "x", Cause::Cancelled),
            (Kind::DataLoss, "x", Cause::InvalidContent),
            (Kind::InvalidArgument, "no layer for this platform", Cause::InvalidContent),
            (Kind::Internal, "x", Cause::Other),
            (Kind::Internal, "write /x: No space left on device (os error 28)", Cause::DiskFull),
        ];
        for (kind, message, want) in cases {
            assert_eq!(Cause::of(&Error::new(kind, message)), want, "{kind} {message}");
        }
        for kind in [Kind::ResourceExhausted, Kind::Unknown] {
            let error = Error::new(kind, "slow down").with_retry_after(Duration::from_secs(3));
            assert_eq!(Cause::of(&error), Cause::RateLimited);
        }
    }

    #[test]
    fn remote_runtimes_are_understood_by_their_text() {
        let cases = [
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to resolve reference \"r.example/a:1\": \
                 r.example/a:1: not found",
                Cause::NotFound,
            ),
            (
                "failed to pull and unpack image \"docker.io/a/b:1\": failed to resolve reference: pull access denied, \
                 repository does not exist or may require authorization: server message: insufficient_scope: \
                 authorization failed",
                Cause::Unauthenticated,
            ),
            ("reading manifest latest in r.example/a: manifest unknown", Cause::NotFound),
            ("reading manifest 1 in r.example/a: unauthorized: authentication required", Cause::Unauthenticated),
            ("requested access to the resource is denied", Cause::Unauthenticated),
            ("unexpected status from HEAD request to https://r.example: 403 Forbidden", Cause::Unauthenticated),
            (
                "unexpected status code https://registry-1.docker.io/v2/: 429 Too Many Requests - Server message: \
                 toomanyrequests: You have reached your pull rate limit.",
                Cause::RateLimited,
            ),
            (
                "failed to do request: Head \"https://r.example/\": dial tcp: lookup r.example: no such host",
                Cause::Unavailable,
            ),
            (
                "pinging container registry r: Get \"https://r/v2/\": dial tcp 10.0.0.1:443: i/o timeout",
                Cause::Unavailable,
            ),
            ("failed to copy: httpReadSeeker: 503 Service Unavailable", Cause::Unavailable),
            ("RegistryUnavailable: pull r.example/a: 404 Not Found", Cause::Unavailable),
            ("SignatureValidationFailed: no policy", Cause::SignatureInvalid),
            (
                "failed to copy: failed commit on ref: unexpected commit digest sha256:00, expected sha256:11",
                Cause::InvalidContent,
            ),
            ("failed to extract layer sha256:00: write /x: no space left on device", Cause::DiskFull),
            ("failed to copy: context deadline exceeded", Cause::Deadline),
            ("rpc error: context canceled", Cause::Cancelled),
            ("something else", Cause::Other),
        ];
        for (message, want) in cases {
            assert_eq!(Cause::of(&Error::new(Kind::Unknown, message)), want, "{message}");
        }
    }

    #[test]
    fn every_cause_has_its_word() {
        let words: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(words.len(), Cause::ALL.len());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    }
}
