//! How calls fail, one after the other, and how that is reported: in one line, of the right kind, that names the operation, the
//! object and the cause. Only for [`super`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use imagelet_store::check::CheckError;
use imagelet_store::mount::MountError;
use imagelet_store::{CommitError, ConvertError, OpenError, StoreError, UnpackError};
use rustix::io::Errno;
use testfault::{Class, Fault};

use super::{Fixture, Unmounted};

/// An error as callers see it.
#[derive(Debug)]
pub(super) struct ReportedError {
    pub(super) text: String,
    pub(super) full: bool,
}

fn outcome(error: &dyn std::error::Error, full: bool) -> ReportedError {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    ReportedError { text, full }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl From<StoreError> for ReportedError {
    fn from(error: StoreError) -> Self {
        outcome(&error, error.is_disk_full())
    }
}

impl From<CommitError> for ReportedError {
    fn from(error: CommitError) -> Self {
        outcome(&error, error.is_disk_full())
    }
}

impl From<UnpackError> for ReportedError {
    fn from(error: UnpackError) -> Self {
        outcome(&error, matches!(&error, UnpackError::Io { source, .. } if is_full(source)))
    }
}

impl From<OpenError> for ReportedError {
    fn from(error: OpenError) -> Self {
        let full = match &error {
            OpenError::Io { source, .. } => is_full(source),
            OpenError::Store(error) => error.is_disk_full(),
            _ => false,
        };
        outcome(&error, full)
    }
}

impl From<ConvertError> for ReportedError {
    fn from(error: ConvertError) -> Self {
        outcome(&error, matches!(&error, ConvertError::Store(error) if error.is_disk_full()))
    }
}

impl From<CheckError> for ReportedError {
    fn from(error: CheckError) -> Self {
        outcome(&error, matches!(&error, CheckError::Store(error) if error.is_disk_full()))
    }
}

impl From<MountError> for ReportedError {
    fn from(error: MountError) -> Self {
        let full = match &error {
            MountError::Store(error) => error.is_disk_full(),
            MountError::Io { source, .. } => is_full(source),
            _ => false,
        };
        outcome(&error, full)
    }
}

/// `reported`: what was found is no error, but a part of a report.
pub(super) fn check_reported(context: &str, fault: Fault, error: &ReportedError, reported: bool) {
    let ReportedError { text, full } = error;
    assert!(!text.contains('\n') && !text.contains("PoisonError"), "{context}: one line: {text}");
    let is_space = [Errno::NOSPC, Errno::DQUOT].contains(&fault.errno);
    assert!(*full == is_space || reported, "{context}: the right kind: {text}");
    let cause = std::io::Error::from(fault.errno).to_string();
    // A layer that cannot be inspected counts as missing; the next pull unpacks it once more.
    let reported = reported || text.contains("must be unpacked again");
    assert!(text.contains(&cause) || reported, "{context}: says why: {text}");
    assert!(text.len() > cause.len() + 8, "{context}: and what was done: {text}");
}

/// How calls fail.
fn faults() -> Vec<(&'static str, Class, Errno, bool)> {
    vec![
        ("the disk is full", Class::Space, Errno::NOSPC, true),
        ("the disk is full for a moment", Class::Space, Errno::NOSPC, false),
        ("the quota is used up", Class::Space, Errno::DQUOT, true),
        ("the medium fails", Class::Any, Errno::IO, true),
        ("the medium fails once", Class::Any, Errno::IO, false),
        ("the file system becomes read-only", Class::Change, Errno::ROFS, true),
        ("the kernel has no memory for a moment", Class::Any, Errno::NOMEM, false),
        ("no descriptor is left", Class::Descriptor, Errno::MFILE, true),
        ("no descriptor is left for a moment", Class::Descriptor, Errno::MFILE, false),
        ("no thread can be started", Class::Thread, Errno::AGAIN, true),
        ("a mount fails", Class::Mount, Errno::NOMEM, false),
        ("no mount succeeds", Class::Mount, Errno::IO, true),
        ("the kernel wants a block device", Class::Mount, Errno::NOTBLK, false),
    ]
}

#[derive(Default)]
pub(super) struct FaultCoverage {
    pub(super) points: u32,
    /// The faults after which something was not as it should be.
    pub(super) bad: Vec<String>,
}

/// Tries each fault at each call, or at some, until the work has no more calls.
pub(super) fn each(step: u16, fixture: &Fixture, mut attempt: impl FnMut(&str, Fault) -> bool) -> FaultCoverage {
    let mut found = FaultCoverage::default();
    for (number, (name, class, errno, lasting)) in faults().iter().copied().enumerate() {
        // Those that are left out with one fault are tried with another.
        let mut at = 1 + u16::try_from(number).expect("few") * 5 % step;
        loop {
            let context = format!("{name}, from call {at} on");
            let fault = Fault { class, errno, at, lasting };
            match catch_unwind(AssertUnwindSafe(|| attempt(&context, fault))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(panic) => {
                    testfault::disarm();
                    let said = panic.downcast_ref::<String>().cloned();
                    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    found.bad.push(format!("{context}: {}", said.unwrap_or_default()));
                    if found.bad.len() >= 200 {
                        return found;
                    }
                    // The other faults are to be reported as well.
                    drop(Unmounted(fixture.target()));
                    let _ = std::fs::remove_dir_all(&fixture.root);
                    fixture.kept.pull(&fixture.opened(), "docker.io/library/kept:1");
                }
            }
            found.points += 1;
            at += step;
        }
    }
    found
}
