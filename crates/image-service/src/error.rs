//! From the errors of registry, store and the layer threads to the one error of the image service: a kind and one line.
//! The only place that decides which kind a failure has. Texts come redacted from the registry crate.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::path::Path;

use cri_api::{Error, Kind, Reason};
use oci::ReferenceOrId;
use registry::{ErrorKind, RegistryError};
use store::{CommitError, MountError, ResolveError, StoreError, TarError, UnpackError};

use crate::intake::{InflateError, IntakeError};

/// Why the engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// An option makes no sense.
    #[error("image service option {option}: {message}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Fault of its value.
        message: String,
    },
    /// The signature policy cannot be used.
    #[error("signature policy {0}")]
    SignaturePolicy(String),
    /// The container runtime whose store gets the images does not answer.
    #[error(transparent)]
    Runtime(Error),
    /// The thread that opens the store ended without an answer.
    #[error("open the store: the thread ended without an answer")]
    Thread,
}

pub(crate) fn cancelled() -> Error {
    Error::new(Kind::Cancelled, "the pull was given up")
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::InvalidArgument, message)
}

/// The image that a call names is absent.
pub(crate) fn absent(image: &ReferenceOrId) -> Error {
    Error::new(Kind::NotFound, format!("image {:?} is not present", image.as_str()))
}

/// Only the runtime can pull the image. Never for a reason that the image alone decides: that needs a setting of the node. The error
/// stays within this crate: [`crate::runtime_pull`] decides whether the runtime may.
pub(crate) fn runtime_only(reason: impl Into<String>) -> Error {
    Error::new(Kind::Unimplemented, reason).with_reason(Reason::InvalidContent)
}

/// Returns true for errors made by [`runtime_only`]. A call that the runtime does not implement is none of them.
pub(crate) fn is_runtime_only(error: &Error) -> bool {
    error.kind() == Kind::Unimplemented && error.reason() == Some(Reason::InvalidContent)
}

pub(crate) fn damaged(message: impl Into<String>) -> Error {
    Error::new(Kind::DataLoss, message)
}

/// A blob that has its digest and cannot be decoded: no other host has it better.
pub(crate) fn damaged_image(error: &Error) -> Error {
    damaged(format!(
        "the image itself is damaged: the blob matches its digest and cannot be decoded: {}",
        error.message()
    ))
    .with_reason(Reason::InvalidContent)
}

/// Returns true if the image itself is damaged, so that fetching the blob again would fail in the same way.
pub(crate) fn is_damaged_image(error: &Error) -> bool {
    error.kind() == Kind::DataLoss && error.reason() == Some(Reason::InvalidContent)
}

pub(crate) fn from_registry(error: &RegistryError) -> Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Unauthenticated => Kind::Unauthenticated,
        ErrorKind::PermissionDenied => Kind::PermissionDenied,
        ErrorKind::RateLimited => Kind::ResourceExhausted,
        ErrorKind::Unavailable => Kind::Unavailable,
        ErrorKind::InvalidContent => Kind::DataLoss,
        ErrorKind::InvalidReference => Kind::InvalidArgument,
        ErrorKind::Config => Kind::FailedPrecondition,
    };
    let mapped = Error::from_source(kind, error);
    match error.retry_after() {
        Some(after) => mapped.with_retry_after(after),
        None => mapped,
    }
}

/// Returns the error of a whole pull, with the image's name. An unavailable registry is reported in the kubelet's
/// words.
pub(crate) fn of_pull(reference: &str, error: &Error) -> Error {
    // Not for people: the caller that passes the pull on names the image.
    if is_runtime_only(error) {
        return error.clone();
    }
    let error = error.clone().context(format_args!("pull {reference}"));
    one_line(match error.kind() {
        // Where the reason is known, it is not the registry.
        Kind::Unavailable if error.reason().is_none() => error.with_reason(Reason::RegistryUnavailable),
        _ => error,
    })
}

/// The signature policy refuses an image.
pub(crate) fn signature(message: impl Into<String>) -> Error {
    Error::new(Kind::FailedPrecondition, message).with_reason(Reason::SignatureInvalid)
}

/// Messages from registries and archives may contain line breaks and control characters.
pub(crate) fn one_line(error: Error) -> Error {
    match oci::text::printable(error.message(), ' ', &[]) {
        Cow::Borrowed(_) => error,
        Cow::Owned(text) => error.with_message(text),
    }
}

pub(crate) fn from_store(root: &Path, error: &StoreError) -> Error {
    if error.is_disk_full() {
        return disk_full(root, error);
    }
    let kind = match error {
        StoreError::NotFound(_) => Kind::NotFound,
        StoreError::InUse { .. } | StoreError::InUseByPodman { .. } | StoreError::Displaced(_) => {
            Kind::FailedPrecondition
        }
        StoreError::UnsuitableName { .. } => Kind::InvalidArgument,
        StoreError::ViewBusy { .. } => Kind::Unavailable,
        StoreError::Corrupt(_) => Kind::DataLoss,
        _ => of_io(error).unwrap_or(Kind::Internal),
    };
    Error::from_source(kind, error)
}

/// The engine's own directory in a runtime's store cannot be opened.
pub(crate) fn from_open(root: &Path, error: &OpenError) -> Error {
    match error {
        OpenError::Runtime(error) => error.clone(),
        error if is_disk_full(error) => disk_full(root, error),
        error => Error::from_source(of_io(error).unwrap_or(Kind::Internal), error),
    }
}

pub(crate) fn from_resolve(root: &Path, error: &ResolveError) -> Error {
    match error {
        ResolveError::Store(error) => from_store(root, error),
        _ => Error::from_source(Kind::InvalidArgument, error),
    }
}

pub(crate) fn from_mount(root: &Path, error: &MountError) -> Error {
    let kind = match error {
        MountError::Store(error) => return from_store(root, error),
        MountError::NotPermitted { .. } | MountError::NeedsFuse { .. } => Kind::PermissionDenied,
        MountError::AlreadyMounted { .. }
        | MountError::NotMounted { .. }
        | MountError::NotOurs { .. }
        | MountError::NoErofs { .. } => Kind::FailedPrecondition,
        MountError::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Kind::InvalidArgument,
            io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
            _ => Kind::Internal,
        },
    };
    Error::from_source(kind, error)
}

pub(crate) fn from_commit(root: &Path, error: &CommitError) -> Error {
    match error {
        CommitError::Store(error) => from_store(root, error),
        CommitError::Config { .. } => Error::from_source(Kind::InvalidArgument, error),
        CommitError::LayersMismatch { .. } | CommitError::Unrelated { .. } => Error::from_source(Kind::DataLoss, error),
        CommitError::ForeignDigest { .. } => Error::from_source(Kind::InvalidArgument, error),
        CommitError::LayerTaken { .. } => Error::from_source(Kind::Unavailable, error),
    }
}

pub(crate) fn from_unpack(root: &Path, error: &UnpackError) -> Error {
    if is_disk_full(error) {
        return disk_full(root, error);
    }
    let kind = match error {
        UnpackError::Cancelled => Kind::Cancelled,
        UnpackError::Archive(TarError::Truncated { .. } | TarError::Malformed { .. }) => Kind::DataLoss,
        UnpackError::Archive(TarError::Limit { .. }) | UnpackError::Refused { .. } => Kind::InvalidArgument,
        _ => of_io(error).unwrap_or(Kind::Internal),
    };
    Error::from_source(kind, error)
}

pub(crate) fn from_inflate(error: &InflateError) -> Error {
    let kind = match error {
        InflateError::Intake(IntakeError::GivenUp)
        | InflateError::UnpackStopped
        | InflateError::Stream(crate::inflate::Error::Stopped(_)) => Kind::Cancelled,
        InflateError::Intake(IntakeError::Verify(_)) => Kind::DataLoss,
        InflateError::Stream(crate::inflate::Error::Corrupt(..) | crate::inflate::Error::Source(_)) => Kind::DataLoss,
        InflateError::Bomb { .. } | InflateError::Stream(crate::inflate::Error::Unsupported(_)) => {
            Kind::InvalidArgument
        }
    };
    Error::from_source(kind, error)
}

/// A failure with a file outside the store: an archive, or where one is written.
pub(crate) fn from_file(operation: &str, path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
        _ if base::is_disk_full(error) => Kind::ResourceExhausted,
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => Kind::FailedPrecondition,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Kind::DataLoss,
        _ => Kind::Internal,
    };
    Error::new(kind, format!("{operation} {}: {error}", path.display()))
}

/// The machine, or a limit of the process, gives no more threads.
pub(crate) fn no_thread(what: &str, error: &io::Error) -> Error {
    Error::new(Kind::Internal, format!("start a thread that {what}: {error}"))
}

pub(crate) fn thread_lost() -> Error {
    Error::new(Kind::Internal, "a thread of the image service ended without an answer: this is a fault of the program")
}

/// Makes the error of a full disk, with the file system of `root`.
pub(crate) fn disk_full(root: &Path, error: &(dyn StdError + 'static)) -> Error {
    let full = Error::from_source(Kind::ResourceExhausted, error);
    // The table of inodes may be full while bytes are free.
    let (reason, what) = match io_below(error).map(io::Error::kind) {
        Some(io::ErrorKind::QuotaExceeded) => (Reason::QuotaExceeded, " (a quota is used up)"),
        _ if store::is_out_of_inodes(root) => (Reason::DiskFull, " (it has no inode left)"),
        _ => (Reason::DiskFull, ""),
    };
    full.context(format_args!("no space left on the file system of {}{what}", root.display())).with_reason(reason)
}

/// Returns true if something below `error` is a full disk or a used-up quota.
fn is_disk_full(error: &(dyn StdError + 'static)) -> bool {
    io_below(error).is_some_and(base::is_disk_full)
}

/// The kind that an I/O error below `error` has, where there is one.
fn of_io(error: &(dyn StdError + 'static)) -> Option<Kind> {
    io_below(error).map(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
        _ => Kind::Internal,
    })
}

fn io_below<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_names_the_file_system() {
        let full = io::Error::from_raw_os_error(28);
        let error = StoreError::Io { operation: "write", path: "/s/ingest/1/fs/a".into(), source: full };
        let error = from_store(Path::new("/s"), &error);
        assert_eq!(error.kind(), Kind::ResourceExhausted);
        assert!(error.message().starts_with("no space left on the file system of /s: "), "{error}");
    }

    #[test]
    fn a_call_that_a_runtime_does_not_implement_hands_no_pull_over() {
        let plain = Error::new(Kind::Unimplemented, "unknown service");
        assert!(!is_runtime_only(&plain) && is_runtime_only(&runtime_only("a mount of 9p")));
        assert_eq!(of_pull("r/x:1", &plain).message(), "pull r/x:1: unknown service");
    }

    #[test]
    fn messages_are_one_line_and_in_the_kubelets_words() {
        let error = of_pull("r/x:1", &Error::new(Kind::Unavailable, "resolve:\n\tno\r\nroute"));
        assert_eq!(error.message(), "RegistryUnavailable: pull r/x:1: resolve:  no  route");
        let error = of_pull("r/x:1", &Error::new(Kind::NotFound, "no such tag"));
        assert_eq!(error.message(), "pull r/x:1: no such tag");
        let error = of_pull("r/x:1", &signature("none"));
        assert_eq!(error.message(), "SignatureValidationFailed: pull r/x:1: none");
    }
}
