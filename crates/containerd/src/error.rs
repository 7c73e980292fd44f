//! [`Error`]: a call that failed, with its subject and the message of containerd.

use std::error::Error as _;
use std::time::Duration;

use cri_api::{Kind, Reason};
use tonic::{Code, Status};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Class of an error, as far as callers act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The object does not exist.
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The object is in use: a snapshot with children, for example.
    InUse,
    /// The object has another form than the call needs: another digest, another kind.
    Invalid,
    /// containerd does not know the call.
    Unimplemented,
    /// No server answers at the socket, or the connection was lost. The call may have taken effect.
    Unavailable,
    /// No answer in time. The call may have taken effect.
    TimedOut,
    /// Anything else; a full disk is among it, since containerd has no code for that.
    Failed,
}

/// A call of containerd's API that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("containerd: {call} {subject}: {message}")]
pub struct Error {
    kind: ErrorKind,
    call: &'static str,
    subject: String,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, call: &'static str, subject: &str, message: impl Into<String>) -> Self {
        Self { kind, call, subject: subject.to_owned(), message: message.into() }
    }

    pub(crate) fn timed_out(call: &'static str, subject: &str, limit: Duration) -> Self {
        Self::new(ErrorKind::TimedOut, call, subject, format!("no answer within {limit:?}"))
    }

    pub(crate) fn of_status(call: &'static str, subject: &str, status: &Status) -> Self {
        let kind = match status.code() {
            Code::NotFound => ErrorKind::NotFound,
            Code::AlreadyExists => ErrorKind::AlreadyExists,
            Code::FailedPrecondition => ErrorKind::InUse,
            Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
            Code::Unimplemented => ErrorKind::Unimplemented,
            Code::Unavailable => ErrorKind::Unavailable,
            Code::DeadlineExceeded => ErrorKind::TimedOut,
            // A status of our own side: the connection broke.
            _ if status.source().is_some() => ErrorKind::Unavailable,
            _ => ErrorKind::Failed,
        };
        let mut message = status.message().to_owned();
        let mut cause = status.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self::new(kind, call, subject, message)
    }

    /// Returns the class.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Name of the call, as in containerd's API.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the object of the call: a digest, a key, a name; empty for lists.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// containerd's own words, or the cause of a lost connection.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Converts to the error for the client that pulls. An object missing in containerd does not mean that the image is missing.
impl From<Error> for cri_api::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let of_kind = |kind| Self::new(kind, message.clone());
        if is_disk_full(&error.message) {
            return of_kind(Kind::ResourceExhausted).with_reason(Reason::DiskFull);
        }
        match error.kind {
            ErrorKind::Unavailable => of_kind(Kind::Unavailable).with_reason(Reason::Unreachable),
            ErrorKind::TimedOut => of_kind(Kind::DeadlineExceeded).with_reason(Reason::Deadline),
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::InUse
            | ErrorKind::Invalid
            | ErrorKind::Unimplemented
            | ErrorKind::Failed => of_kind(Kind::Internal),
        }
    }
}

/// containerd has no code for a full disk, and passes the kernel's words on.
fn is_disk_full(message: &str) -> bool {
    message.contains("no space left on device") || message.contains("disk quota exceeded")
}

/// `Ok(None)` in place of an error of this kind.
pub(crate) fn unless<T>(kind: ErrorKind, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == kind => Ok(None),
        Err(error) => Err(error),
    }
}
