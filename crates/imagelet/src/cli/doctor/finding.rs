//! [`Finding`]: the result of one check, and the limit on its time. Plain data.

use std::time::Duration;

use serde::Serialize;

/// Longest time of one check.
pub(super) const LIMIT: Duration = Duration::from_secs(15);

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Nothing to do.
    Ok,
    /// Works, but not as well as it could, or not for everything.
    Warning,
    /// Must be fixed.
    Error,
    /// The check cannot run here.
    Skipped,
}

impl Verdict {
    /// Returns the word for users and programs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Name of the check.
    pub(super) check: &'static str,
    pub(super) result: Verdict,
    /// The facts, in one line.
    pub(super) message: String,
    /// The remedy; empty if nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl Finding {
    /// Creates the result of a check that passed.
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, result: Verdict::Ok, message: message.into(), remedy: String::new() }
    }

    /// Creates a warning.
    pub(super) fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, result: Verdict::Warning, message: message.into(), remedy: remedy.into() }
    }

    /// Creates an error, which must be fixed.
    pub(super) fn error(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, result: Verdict::Error, message: message.into(), remedy: remedy.into() }
    }

    /// Creates the result of a check that cannot run.
    pub(super) fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, result: Verdict::Skipped, message: why.into(), remedy: String::new() }
    }

    /// Returns the message and the remedy in one line.
    pub(super) fn details(&self) -> String {
        if self.remedy.is_empty() { self.message.clone() } else { format!("{}; {}", self.message, self.remedy) }
    }
}

/// Runs a check, and reports that it did not end in time.
pub(super) async fn bounded(check: &'static str, work: impl Future<Output = Finding>) -> Finding {
    let late = || Finding::skipped(check, format!("the check did not end within {}s", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| late())
}

/// Runs a check that blocks.
pub(super) async fn blocking(check: &'static str, work: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    let ended = async { tokio::task::spawn_blocking(work).await };
    bounded(check, async { ended.await.unwrap_or_else(|_| Finding::skipped(check, "the check panicked")) }).await
}
