//! What is told of faults: one line, of the right kind, that says what was done to what and why it did not succeed. Only for
//! [`super`].

use imagelet_store::check::CheckError;
use imagelet_store::mount::MountError;
use imagelet_store::{CommitError, ConvertError, OpenError, StoreError, UnpackError};
use rustix::io::Errno;
use testfault::Fault;

/// An error as callers see it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) full: bool,
}

fn told(error: &dyn std::error::Error, full: bool) -> Told {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    Told { text, full }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl From<StoreError> for Told {
    fn from(error: StoreError) -> Self {
        told(&error, error.is_disk_full())
    }
}

impl From<CommitError> for Told {
    fn from(error: CommitError) -> Self {
        told(&error, error.is_disk_full())
    }
}

impl From<UnpackError> for Told {
    fn from(error: UnpackError) -> Self {
        told(&error, matches!(&error, UnpackError::Io { source, .. } if is_full(source)))
    }
}

impl From<OpenError> for Told {
    fn from(error: OpenError) -> Self {
        let full = match &error {
            OpenError::Io { source, .. } => is_full(source),
            OpenError::Store(error) => error.is_disk_full(),
            _ => false,
        };
        told(&error, full)
    }
}

impl From<ConvertError> for Told {
    fn from(error: ConvertError) -> Self {
        told(&error, matches!(&error, ConvertError::Store(error) if error.is_disk_full()))
    }
}

impl From<CheckError> for Told {
    fn from(error: CheckError) -> Self {
        told(&error, matches!(&error, CheckError::Store(error) if error.is_disk_full()))
    }
}

impl From<MountError> for Told {
    fn from(error: MountError) -> Self {
        let full = match &error {
            MountError::Store(error) => error.is_disk_full(),
            MountError::Io { source, .. } => is_full(source),
            _ => false,
        };
        told(&error, full)
    }
}

/// `reported`: what was found is no error, but a part of a report.
pub(super) fn check_told(context: &str, fault: Fault, error: &Told, reported: bool) {
    let Told { text, full } = error;
    assert!(!text.contains('\n') && !text.contains("PoisonError"), "{context}: one line: {text}");
    let is_space = [Errno::NOSPC, Errno::DQUOT].contains(&fault.errno);
    assert!(*full == is_space || reported, "{context}: the right kind: {text}");
    let cause = std::io::Error::from(fault.errno).to_string();
    // A layer that cannot be looked at is not there; who pulls unpacks it once more.
    let reported = reported || text.contains("must be unpacked again");
    assert!(text.contains(&cause) || reported, "{context}: says why: {text}");
    assert!(text.len() > cause.len() + 8, "{context}: and what was done: {text}");
}
