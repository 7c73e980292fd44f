//! Exit codes, and the one error type that commands end with: a code for programs and a line for users. Prints nothing. Called by
//! the whole binary.

use std::fmt;

use agent::admin::{ListenError, NoEngine};
use agent::api::client::AskError;
use agent::collection::CollectionError;
use agent::node::SecretsError;
use agent::node::lock::LockError;
use cluster::ClientError;
use cluster::identity::JoinError;
use cluster::kubelet_api::StreamAddressError;
use cluster::node::NameTaken;
use cri_api::{Kind, Reason};

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The operation failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// The configuration is wrong (sysexits names this number for usage, which clap answers with 2).
    Config = 64,
    /// An endpoint or registry cannot be reached.
    Unreachable = 69,
    /// The system or the registry does not permit it.
    NotPermitted = 77,
    /// Ended by SIGINT, as shells count it.
    Interrupted = 130,
    /// Ended by SIGTERM, as shells count it.
    Terminated = 143,
}

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// A failed command. Its lines are worded for users already; `main` prints them last.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    lines: Vec<String>,
    /// Exit code of a program that ended in a container and is returned as our own.
    ended: Option<u8>,
}

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Creates a failure with one line.
    pub(crate) fn new(code: Code, line: impl Into<String>) -> Self {
        Self { code, lines: vec![line.into()], ended: None }
    }

    /// Returns the exit code of a program that this process stands for. The program printed its own errors.
    pub(crate) fn ended(code: u8) -> Self {
        Self { code: Code::Failed, lines: Vec::new(), ended: Some(code) }
    }

    /// Creates a failure of the operation.
    pub(crate) fn failed(line: impl Into<String>) -> Self {
        Self::new(Code::Failed, line)
    }

    /// Creates a failure of wrong usage.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(Code::Usage, line)
    }

    /// Creates a failure with this code, worded as `context: source: source of the source`.
    pub(crate) fn caused(code: Code, context: impl fmt::Display, source: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(code, format!("{context}: {}", chain(source)))
    }

    /// Creates a failure from a failed call of a service, by its kind.
    pub(crate) fn call(context: impl fmt::Display, error: &cri_api::Error) -> Self {
        Self::new(code_of(error.kind()), format!("{context}: {}", error.message()))
    }

    /// Creates a failure from an error of the operating system: a missing permission has a code of its own.
    pub(crate) fn system(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let denied = causes.any(|cause| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied)
        });
        Self::new(if denied { Code::NotPermitted } else { Code::Failed }, chain(error))
    }

    /// Combines failures into one: all lines, and the code that all share, otherwise 1. `None` if there are none.
    pub(crate) fn all(failures: Vec<Self>) -> Option<Self> {
        let mut failures = failures.into_iter();
        let first = failures.next()?;
        Some(failures.fold(first, |mut all, next| {
            if all.code != next.code {
                all.code = Code::Failed;
            }
            all.lines.extend(next.lines);
            all
        }))
    }

    /// Adds a hint on the flag that helps if an image has no variant for this platform.
    pub(crate) fn with_platform_hint(mut self, error: &cri_api::Error, hint: &str) -> Self {
        if error.reason() == Some(Reason::NoPlatform)
            && let Some(line) = self.lines.last_mut()
        {
            line.push_str(&format!(" ({hint})"));
        }
        self
    }

    /// Adds the next command if the disk was full.
    pub(crate) fn with_space_hint(mut self, error: &cri_api::Error) -> Self {
        if error.reason().is_some_and(Reason::is_disk_full)
            && let Some(line) = self.lines.last_mut()
        {
            line.push_str("; `imagelet gc --dry-run --all-unused` shows what can be removed");
        }
        self
    }

    /// Replaces the exit code.
    pub(crate) fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Returns the exit code for the shell.
    pub(crate) fn exit_code(&self) -> std::process::ExitCode {
        self.ended.map_or_else(|| self.code.into(), std::process::ExitCode::from)
    }

    /// Returns the lines to print.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        Self::new(code_of(error.kind()), chain(&error))
    }
}

impl From<CollectionError> for Failure {
    fn from(error: CollectionError) -> Self {
        Self::new(code_of(error.kind()), chain(&error))
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        Self::system(&error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::system(&error)
    }
}

impl From<NoEngine> for Failure {
    fn from(error: NoEngine) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(Code::Config, chain(&error))
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        let code = match &error {
            JoinError::Signing { .. } => Code::NotPermitted,
            JoinError::Client(_) | JoinError::Bootstrap { .. } => Code::Config,
            _ => Code::Failed,
        };
        Self::new(code, chain(&error))
    }
}

impl From<StreamAddressError> for Failure {
    fn from(error: StreamAddressError) -> Self {
        Self::new(Code::Failed, error.to_string())
    }
}

impl From<NameTaken> for Failure {
    fn from(error: NameTaken) -> Self {
        Self::new(Code::Failed, error.to_string())
    }
}

impl From<SecretsError> for Failure {
    fn from(error: SecretsError) -> Self {
        Self::new(Code::Config, error.to_string())
    }
}

/// Returns the exit code of a kind of errors.
pub(crate) fn code_of(kind: Kind) -> Code {
    match kind {
        Kind::Unavailable | Kind::DeadlineExceeded => Code::Unreachable,
        Kind::Unauthenticated | Kind::PermissionDenied => Code::NotPermitted,
        _ => Code::Failed,
    }
}

/// Returns an error and its causes in one line. A cause whose text is in the line already is left out.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    cri_api::Error::from_source(Kind::Internal, error).message().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_join() {
        let one = |kind| Failure::call("pull x", &cri_api::Error::new(kind, "no"));
        assert!(Failure::all(vec![]).is_none());
        let all = Failure::all(vec![one(Kind::Unavailable), one(Kind::DeadlineExceeded)]).expect("some");
        assert_eq!((all.code(), all.lines().len()), (Code::Unreachable, 2));
        let all = Failure::all(vec![one(Kind::Unavailable), one(Kind::NotFound)]).expect("some");
        assert_eq!(all.code(), Code::Failed);
        assert_eq!(all.lines()[1], "pull x: no");
    }

    #[test]
    fn codes_are_those_of_the_table() {
        let codes = [Code::Failed, Code::Usage, Code::Config, Code::Unreachable, Code::NotPermitted];
        assert_eq!(codes.map(|c| c as u8), [1, 2, 64, 69, 77]);
    }
}
