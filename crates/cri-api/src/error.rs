//! [`Error`]: an error and its kind. The kinds are those gRPC codes that an image service uses; callers match on
//! [`Error::kind`], people read the message. A message never contains a secret: the code that makes one redacts it first.

use std::fmt;
use std::time::Duration;

/// Result of a service call.
pub type Result<T> = std::result::Result<T, Error>;

/// Class of a failed call. One per reaction that a caller can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request itself is wrong: a bad reference, an unsupported media type.
    InvalidArgument,
    /// Image, manifest or repository does not exist.
    NotFound,
    /// The registry wants other credentials.
    Unauthenticated,
    /// The registry, or the system, refuses this caller.
    PermissionDenied,
    /// Too many requests, or no space left.
    ResourceExhausted,
    /// The state of the store or runtime does not allow it: in use, pinned, held by another process.
    FailedPrecondition,
    /// Content is not what its digest promises.
    DataLoss,
    /// The peer cannot be reached, or failed in a way that may pass.
    Unavailable,
    /// A deadline passed.
    DeadlineExceeded,
    /// The caller has disconnected or cancelled.
    Cancelled,
    /// The implementation does not have this call.
    Unimplemented,
    /// A fault of the implementation, or of the disk under it.
    Internal,
    /// The peer gave no code (gRPC `Unknown`): only the message gives the cause.
    Unknown,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::InvalidArgument,
        Self::NotFound,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::DataLoss,
        Self::Unavailable,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::Unimplemented,
        Self::Internal,
        Self::Unknown,
    ];

    /// Returns the kind of this name, as [`Kind::as_str`] returns it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns the name, as in gRPC.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "InvalidArgument",
            Self::NotFound => "NotFound",
            Self::Unauthenticated => "Unauthenticated",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::FailedPrecondition => "FailedPrecondition",
            Self::DataLoss => "DataLoss",
            Self::Unavailable => "Unavailable",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Cancelled => "Canceled",
            Self::Unimplemented => "Unimplemented",
            Self::Internal => "Internal",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reason of a failed call, if the kind is not enough: CRI has no code for it. Set by the service that fails, or for a foreign
/// runtime by `cri-grpc`, which knows the texts of runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The registry cannot be reached, in a runtime's own word for the kubelet.
    RegistryUnavailable,
    /// The signature policy refuses the image.
    SignatureInvalid,
    /// The disk is full: of bytes or of inodes.
    DiskFull,
    /// A disk quota is used up; the disk may have space.
    QuotaExceeded,
    /// The registry wants fewer requests.
    RateLimited,
    /// The registry refuses the credential, or wants one.
    Unauthenticated,
    /// The registry does not have the image.
    NotFound,
    /// The image has nothing for the platform that was asked for.
    NoPlatform,
    /// Content is not what was promised, or cannot be used.
    InvalidContent,
    /// The deadline passed.
    Deadline,
    /// The caller gave it up.
    Cancelled,
    /// The peer, or the way to it, does not work at the moment.
    Unreachable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::RegistryUnavailable,
        Self::SignatureInvalid,
        Self::DiskFull,
        Self::QuotaExceeded,
        Self::RateLimited,
        Self::Unauthenticated,
        Self::NotFound,
        Self::NoPlatform,
        Self::InvalidContent,
        Self::Deadline,
        Self::Cancelled,
        Self::Unreachable,
    ];

    /// Returns the word with which a message begins, if the kubelet recognizes the reason by it (cri-api, `pkg/errors`).
    #[must_use]
    pub fn kubelet_word(self) -> Option<&'static str> {
        match self {
            Self::RegistryUnavailable => Some("RegistryUnavailable"),
            Self::SignatureInvalid => Some("SignatureValidationFailed"),
            _ => None,
        }
    }

    /// Returns the name, as programs exchange it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RegistryUnavailable => "registry-unavailable",
            Self::SignatureInvalid => "signature-invalid",
            Self::DiskFull => "disk-full",
            Self::QuotaExceeded => "quota-exceeded",
            Self::RateLimited => "rate-limited",
            Self::Unauthenticated => "unauthenticated",
            Self::NotFound => "not-found",
            Self::NoPlatform => "no-platform",
            Self::InvalidContent => "invalid-content",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Unreachable => "unreachable",
        }
    }

    /// Returns true if there was no space: the disk is full, or a quota is used up.
    #[must_use]
    pub fn is_disk_full(self) -> bool {
        matches!(self, Self::DiskFull | Self::QuotaExceeded)
    }

    /// Returns the reason of this name, as [`Reason::as_str`] returns it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// A failed call: a kind for programs, one line for people. Cloneable, because callers that share one pull share its
/// error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    reason: Option<Reason>,
    message: String,
    retry_after: Option<Duration>,
    needed_bytes: Option<u64>,
}

impl Error {
    /// Creates an error of this kind.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, reason: None, message: message.into(), retry_after: None, needed_bytes: None }
    }

    /// Creates an error whose message is that of `source` and of all its causes, joined by `: `.
    #[must_use]
    pub fn from_source(kind: Kind, source: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = source.to_string();
        let mut next = source.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            next = cause.source();
        }
        Self { kind, reason: None, message, retry_after: None, needed_bytes: None }
    }

    /// Sets the pause that a peer asks for before the next call.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// Returns the pause that the peer asks for, if there is one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the same error of a full disk, for a call that needs about this many free bytes to succeed.
    #[must_use]
    pub fn with_needed_bytes(self, needed_bytes: u64) -> Self {
        Self { needed_bytes: Some(needed_bytes), ..self }
    }

    /// Returns the number of bytes that must be free for the same call to succeed, if that is known. Returns `None` if it is
    /// unknown, or if disk space was not the problem.
    #[must_use]
    pub fn needed_bytes(&self) -> Option<u64> {
        self.needed_bytes
    }

    /// Sets the reason. The message then begins with the kubelet's word for the reason, if there is one.
    #[must_use]
    pub fn with_reason(self, reason: Reason) -> Self {
        let message = match reason.kubelet_word() {
            Some(word) if !self.message.starts_with(word) => format!("{word}: {}", self.message),
            _ => self.message,
        };
        Self { reason: Some(reason), message, ..self }
    }

    /// Returns the reason, where it is known and the kind is not enough.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the message: one line, without secrets.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Adds `context: ` in front of the message, after the kubelet's word.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        let word = self.reason.and_then(Reason::kubelet_word);
        let message = match word.and_then(|word| Some((word, self.message.strip_prefix(word)?))) {
            Some((word, rest)) => format!("{word}: {context}{rest}"),
            None => format!("{context}: {}", self.message),
        };
        Self { message, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_joined_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("open store")]
        struct Outer(#[source] std::io::Error);
        let e = Error::from_source(Kind::Internal, &Outer(std::io::Error::other("disk on fire")));
        assert_eq!(e.to_string(), "open store: disk on fire");
        let e = e.with_retry_after(Duration::from_secs(7)).with_needed_bytes(4096).context("pull");
        assert_eq!(e.message(), "pull: open store: disk on fire");
        assert_eq!((e.kind(), e.retry_after()), (Kind::Internal, Some(Duration::from_secs(7))));
        assert_eq!(e.with_message("x").needed_bytes(), Some(4096));
    }

    #[test]
    fn the_kubelets_reason_is_first() {
        let refused = Error::new(Kind::FailedPrecondition, "no key").with_reason(Reason::SignatureInvalid);
        assert_eq!(refused.message(), "SignatureValidationFailed: no key");
        let refused = refused.with_reason(Reason::SignatureInvalid).context("pull r/x:1");
        assert_eq!(refused.message(), "SignatureValidationFailed: pull r/x:1: no key");
        let full = Error::new(Kind::ResourceExhausted, "write y").with_reason(Reason::DiskFull).context("pull");
        assert_eq!((full.message(), full.reason()), ("pull: write y", Some(Reason::DiskFull)));
        for reason in Reason::ALL {
            assert_eq!(Reason::of_name(reason.as_str()), Some(reason));
        }
    }
}
