//! [`Cause`]: the cause of a failed pull, as far as back-off and metrics distinguish it. A table over an error's kind; where
//! that is not specific, over its reason. It decides nothing; back-off, the puller and the metrics use it.

use std::fmt;

use cri_api::{Error, Kind, Reason};

/// Cause of a failed pull.
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
    /// The content differs from its descriptor, or cannot be used.
    InvalidContent,
    /// The signature is missing or wrong.
    SignatureInvalid,
    /// The pull was given up.
    Cancelled,
    /// The pull made no progress, or took too long.
    Deadline,
    /// The pull was refused on the node, by `registryPullQPS`.
    Throttled,
    /// Anything else.
    Other,
}

impl Cause {
    /// Every cause, for callers that keep one value for each.
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

    /// The cause that an error of an image service reports.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        if error.needed_bytes().is_some() {
            return Self::DiskFull;
        }
        match error.kind() {
            Kind::NotFound => Self::NotFound,
            Kind::Unauthenticated | Kind::PermissionDenied => Self::Unauthenticated,
            Kind::ResourceExhausted if error.retry_after().is_some() => Self::RateLimited,
            Kind::ResourceExhausted if error.reason().is_some_and(Reason::is_disk_full) => Self::DiskFull,
            Kind::ResourceExhausted => Self::RateLimited,
            Kind::Unavailable => Self::Unavailable,
            Kind::DeadlineExceeded => Self::Deadline,
            Kind::Cancelled => Self::Cancelled,
            Kind::DataLoss | Kind::InvalidArgument => Self::InvalidContent,
            Kind::Unimplemented | Kind::FailedPrecondition | Kind::Internal | Kind::Unknown => {
                if error.retry_after().is_some() {
                    return Self::RateLimited;
                }
                error.reason().map_or(Self::Other, Self::of_reason)
            }
        }
    }

    fn of_reason(reason: Reason) -> Self {
        match reason {
            Reason::RegistryUnavailable | Reason::Unreachable => Self::Unavailable,
            Reason::SignatureInvalid => Self::SignatureInvalid,
            Reason::DiskFull | Reason::QuotaExceeded => Self::DiskFull,
            Reason::RateLimited => Self::RateLimited,
            Reason::Unauthenticated => Self::Unauthenticated,
            Reason::NotFound | Reason::NoPlatform => Self::NotFound,
            Reason::InvalidContent => Self::InvalidContent,
            Reason::Deadline => Self::Deadline,
            Reason::Cancelled => Self::Cancelled,
        }
    }

    /// The word for the cause, in lower case with underscores: label of metrics, and what `imagelet backoff` prints.
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

    /// Returns true if the cause passes by itself, and then for every pod at once.
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
            (Kind::Unavailable, "manifest unknown", Cause::Unavailable),
            (Kind::DeadlineExceeded, "x", Cause::Deadline),
            (Kind::Cancelled, "x", Cause::Cancelled),
            (Kind::DataLoss, "x", Cause::InvalidContent),
            (Kind::InvalidArgument, "no layer for this platform", Cause::InvalidContent),
            (Kind::Internal, "x", Cause::Other),
            (Kind::Internal, "write /x: no space left", Cause::Other),
        ];
        for (kind, message, want) in cases {
            assert_eq!(Cause::of(&Error::new(kind, message)), want, "{kind} {message}");
        }
        for kind in [Kind::ResourceExhausted, Kind::Internal] {
            for reason in [Reason::DiskFull, Reason::QuotaExceeded] {
                assert_eq!(Cause::of(&Error::new(kind, "x").with_reason(reason)), Cause::DiskFull);
            }
        }
        for kind in [Kind::ResourceExhausted, Kind::Unknown] {
            let error = Error::new(kind, "slow down").with_retry_after(Duration::from_secs(3));
            assert_eq!(Cause::of(&error), Cause::RateLimited);
        }
    }

    #[test]
    fn reasons_decide_where_the_kind_does_not() {
        let of = |kind, reason| Cause::of(&Error::new(kind, "x").with_reason(reason));
        assert_eq!(of(Kind::Unknown, Reason::Unauthenticated), Cause::Unauthenticated);
        assert_eq!(of(Kind::FailedPrecondition, Reason::SignatureInvalid), Cause::SignatureInvalid);
        assert_eq!(of(Kind::Unavailable, Reason::NotFound), Cause::Unavailable, "the kind tells");
    }

    #[test]
    fn every_cause_has_its_word() {
        let words: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(words.len(), Cause::ALL.len());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    }
}
