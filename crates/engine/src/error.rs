//! [`Error`] of every call of this crate, and [`ErrorKind`], by which callers decide. Converts the errors of the crates below, once.

use std::time::Duration;

use cri_api::{Kind, Reason};
use store::view::ViewError;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of an error, as far as callers act differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A reference, an ID, a path or a setting is not valid, or the image has content that is not supported.
    InvalidArgument,
    /// The registry does not have the image, the store does not have it, or the image does not have the file.
    NotFound,
    /// The registry demands a credential, or does not accept the one of the request.
    Unauthorized,
    /// The registry denies this credential the image, or the system denies this process a file.
    PermissionDenied,
    /// The registry limits the rate of requests: see [`Error::retry_after`].
    RateLimited,
    /// The registry cannot be reached or fails, or the engine was shut down. A later attempt may succeed.
    Unavailable,
    /// The image has no variant for the platform of the engine.
    NoPlatform,
    /// Content does not match its digest, or is damaged.
    InvalidContent,
    /// The signature policy does not accept the image.
    PolicyRejected,
    /// The disk or a quota is full: see [`Error::needed_bytes`].
    DiskFull,
    /// Another process owns the store, or a mount uses the image.
    InUse,
    /// The pull was cancelled by a shutdown of the engine.
    Cancelled,
    /// A disk error, a damaged store, or a defect of this library.
    Internal,
}

/// A failed call: a kind for programs and one line of text for people. The text contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    needed_bytes: Option<u64>,
}

impl Error {
    /// Returns the cause.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the pause that the registry asks for before the next attempt, if there is one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the number of bytes that must be free for the same pull to succeed, if the disk was full and the number is known.
    #[must_use]
    pub fn needed_bytes(&self) -> Option<u64> {
        self.needed_bytes
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, needed_bytes: None }
    }

    /// Creates an error with the text of `source` and of all its causes.
    pub(crate) fn caused(kind: ErrorKind, context: &str, source: &(dyn std::error::Error + 'static)) -> Self {
        // The kind of the service's error is not used: only its text.
        Self::new(kind, cri_api::Error::from_source(Kind::Internal, source).context(context).message())
    }

    /// The error of a call of the image service.
    pub(crate) fn of_call(error: &cri_api::Error) -> Self {
        Self {
            kind: kind_of(error.kind(), error.reason()),
            message: error.message().to_owned(),
            retry_after: error.retry_after(),
            needed_bytes: error.needed_bytes(),
        }
    }

    /// The error of opening an engine on the store under `root`.
    pub(crate) fn of_open(root: &std::path::Path, error: &image_service::OpenError) -> Self {
        let kind = match error {
            image_service::OpenError::Store(store::OpenError::Held { .. }) => ErrorKind::InUse,
            image_service::OpenError::Store(
                store::OpenError::NotADirectory { .. }
                | store::OpenError::NotAStore { .. }
                | store::OpenError::Lacks { .. }
                | store::OpenError::NewerVersion { .. },
            )
            | image_service::OpenError::Option { .. }
            | image_service::OpenError::SignaturePolicy(_) => ErrorKind::InvalidArgument,
            image_service::OpenError::Store(store::OpenError::NotOwned { .. }) => ErrorKind::PermissionDenied,
            image_service::OpenError::Store(store::OpenError::Io { source, .. }) => kind_of_io(source),
            image_service::OpenError::Store(store::OpenError::Store(error)) if error.is_disk_full() => {
                ErrorKind::DiskFull
            }
            _ => ErrorKind::Internal,
        };
        Self::caused(kind, &format!("open the engine on {}", root.display()), error)
    }

    /// The error of reading a file of an image.
    pub(crate) fn of_view(image: &oci::Digest, error: &ViewError) -> Self {
        let kind = match error {
            ViewError::NotFound { .. } => ErrorKind::NotFound,
            ViewError::Kind { .. } | ViewError::Links { .. } => ErrorKind::InvalidArgument,
            ViewError::Name { .. } => ErrorKind::InvalidContent,
            ViewError::Layer { source, .. } | ViewError::Read { source, .. } => kind_of_io(source),
            _ => ErrorKind::Internal,
        };
        Self::caused(kind, &format!("read image {image}"), error)
    }

    /// The error of a caller's writer.
    pub(crate) fn of_write(operation: &str, error: &std::io::Error) -> Self {
        Self::caused(kind_of_io(error), operation, error)
    }
}

impl From<oci::ReferenceError> for Error {
    fn from(error: oci::ReferenceError) -> Self {
        Self::caused(ErrorKind::InvalidArgument, "parse an image reference", &error)
    }
}

impl From<oci::PlatformError> for Error {
    fn from(error: oci::PlatformError) -> Self {
        Self::caused(ErrorKind::InvalidArgument, "parse a platform", &error)
    }
}

fn kind_of_io(error: &std::io::Error) -> ErrorKind {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ if base::is_disk_full(error) => ErrorKind::DiskFull,
        _ => ErrorKind::Internal,
    }
}

/// Returns the kind of an error of the image service. Its reason is more specific than its kind.
fn kind_of(kind: Kind, reason: Option<Reason>) -> ErrorKind {
    match reason {
        Some(Reason::SignatureInvalid) => return ErrorKind::PolicyRejected,
        Some(Reason::DiskFull | Reason::QuotaExceeded) => return ErrorKind::DiskFull,
        Some(Reason::NoPlatform) => return ErrorKind::NoPlatform,
        _ => {}
    }
    match kind {
        Kind::InvalidArgument | Kind::Unimplemented => ErrorKind::InvalidArgument,
        Kind::NotFound => ErrorKind::NotFound,
        Kind::Unauthenticated => ErrorKind::Unauthorized,
        Kind::PermissionDenied => ErrorKind::PermissionDenied,
        Kind::ResourceExhausted => ErrorKind::RateLimited,
        Kind::FailedPrecondition => ErrorKind::InUse,
        Kind::DataLoss => ErrorKind::InvalidContent,
        Kind::Unavailable | Kind::DeadlineExceeded => ErrorKind::Unavailable,
        Kind::Cancelled => ErrorKind::Cancelled,
        Kind::Internal | Kind::Unknown => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_decides_before_the_kind() {
        let cases = [
            (Kind::ResourceExhausted, None, ErrorKind::RateLimited),
            (Kind::ResourceExhausted, Some(Reason::RateLimited), ErrorKind::RateLimited),
            (Kind::ResourceExhausted, Some(Reason::DiskFull), ErrorKind::DiskFull),
            (Kind::FailedPrecondition, None, ErrorKind::InUse),
            (Kind::FailedPrecondition, Some(Reason::SignatureInvalid), ErrorKind::PolicyRejected),
            (Kind::NotFound, Some(Reason::NoPlatform), ErrorKind::NoPlatform),
            (Kind::Unavailable, Some(Reason::RegistryUnavailable), ErrorKind::Unavailable),
        ];
        for (kind, reason, wanted) in cases {
            assert_eq!(kind_of(kind, reason), wanted, "{kind} {reason:?}");
        }
    }

    #[test]
    fn details_of_a_failed_call_are_kept() {
        let limited =
            cri_api::Error::new(Kind::ResourceExhausted, "slow down").with_retry_after(Duration::from_secs(7));
        assert_eq!(Error::of_call(&limited).retry_after(), Some(Duration::from_secs(7)));
        let full = cri_api::Error::new(Kind::ResourceExhausted, "full").with_reason(Reason::DiskFull);
        let error = Error::of_call(&full.with_needed_bytes(4096));
        assert_eq!((error.kind(), error.needed_bytes()), (ErrorKind::DiskFull, Some(4096)));
    }
}
