//! [`EnsureImageError`]: why an image could not be made present. Its [`reason`](EnsureImageError::reason) and
//! [`message`](EnsureImageError::message) are those of the waiting state in a container's status; both are the kubelet's
//! words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use credentials::{KeyringError, Source};
use cri_api::{Error, Kind, Reason};
use oci::ImageNameError;
use tokio::time::Instant;

use crate::{Cause, RecordsError};

/// Why an image could not be made present.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnsureImageError {
    /// The text is no image name.
    #[error("parse image name")]
    InvalidImageName {
        /// The parser's error; names the text.
        source: ImageNameError,
    },
    /// The runtime failed to report whether the image is present.
    #[error("inspect image {image:?}")]
    ImageInspect {
        /// The image as it was requested.
        image: String,
        /// Error of the runtime's `ImageStatus`.
        source: Error,
    },
    /// The policy is `Never`, and the image is absent.
    #[error("image {image:?} is not present, and its pull policy is Never")]
    ErrImageNeverPull {
        /// The image as it was requested.
        image: String,
    },
    /// The credentials could not be looked up: a pull secret is broken.
    #[error("look up credentials")]
    Credentials {
        /// The error; names the secret.
        source: Arc<KeyringError>,
    },
    /// Nothing was pulled, because it could not be written down beforehand.
    #[error("record the intent to pull image {image:?}")]
    Record {
        /// The image as it was requested.
        image: String,
        /// Why the pull intent could not be written.
        source: Arc<RecordsError>,
    },
    /// An earlier pull failed, and it is too early for the next one.
    #[error("back-off pulling image {image:?}: {last}")]
    BackOff {
        /// The image as it was requested.
        image: String,
        /// Reason and message of the last failure.
        last: String,
        /// Cause of the failure.
        cause: Cause,
        /// When the next pull may be.
        until: Instant,
    },
    /// Every attempt to pull it failed.
    #[error("pull image {image:?}")]
    Pull {
        /// The image as it was requested.
        image: String,
        /// The failed attempts with their errors; none where no attempt could be made.
        source: PullFailure,
    },
}

impl EnsureImageError {
    /// The reason that a waiting container shows.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidImageName { .. } => "InvalidImageName",
            Self::ImageInspect { .. } => "ImageInspectError",
            Self::ErrImageNeverPull { .. } => "ErrImageNeverPull",
            Self::Credentials { .. } | Self::Record { .. } => "ErrImagePull",
            Self::BackOff { .. } => "ImagePullBackOff",
            Self::Pull { source, .. } => match source.named() {
                Some(named) => named.word,
                None => "ErrImagePull",
            },
        }
    }

    /// Returns the message to the reason. It never holds a secret.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::InvalidImageName { source } => {
                format!("Failed to apply default image tag {:?}: {source}", source.name)
            }
            Self::ImageInspect { image, source } => format!("Failed to inspect image {image:?}: {source}"),
            Self::ErrImageNeverPull { image } => {
                format!("Container image {image:?} is not present with pull policy of Never")
            }
            Self::Credentials { source } => source.to_string(),
            Self::Record { image, source } => {
                format!("Failed to record image pull intent for container image {image:?}: {source}")
            }
            Self::BackOff { image, last, .. } => format!("Back-off pulling image {image:?}: {last}"),
            Self::Pull { image, source } => {
                let Some(named) = source.named() else { return source.to_string() };
                format!("image pull failed for {image} because {}{}", named.because, source.beyond(named))
            }
        }
    }

    /// Kind of the failure, as far as a service reported it; for exit codes and metrics.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::InvalidImageName { .. } => Some(Kind::InvalidArgument),
            Self::ImageInspect { source, .. } => Some(source.kind()),
            Self::ErrImageNeverPull { .. } | Self::Credentials { .. } | Self::Record { .. } => None,
            Self::BackOff { cause, .. } => (*cause == Cause::Unavailable).then_some(Kind::Unavailable),
            Self::Pull { source, .. } => source.attempts().last().map(|attempt| attempt.error.kind()),
        }
    }

    /// Cause of a failed pull; `None`: there was no pull.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::InvalidImageName { .. }
            | Self::ImageInspect { .. }
            | Self::ErrImageNeverPull { .. }
            | Self::Credentials { .. }
            | Self::Record { .. } => None,
            Self::BackOff { cause, .. } => Some(*cause),
            Self::Pull { source, .. } => Some(source.cause()),
        }
    }
}

/// A failed attempt to pull, with its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Source of its credential; `None`: anonymous.
    pub source: Option<Source>,
    /// Error of the image service.
    pub error: Error,
}

/// A pull failed: every attempt, or before there was one. It shows each cause with the source of its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    attempts: Vec<Attempt>,
    cause: Cause,
    /// Credentials that were left out of the attempts, each with the reason.
    notes: Vec<String>,
}

/// A cause that the kubelet has a name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamedReason {
    /// The name, with which messages of runtimes begin.
    word: &'static str,
    /// The kubelet's message.
    because: &'static str,
}

impl NamedReason {
    fn of(reason: Reason) -> Option<Self> {
        let word = reason.kubelet_word()?;
        let because = match reason {
            Reason::SignatureInvalid => "the signature validation failed",
            _ => "the registry is unavailable",
        };
        Some(Self { word, because })
    }
}

impl PullFailure {
    /// Each attempt failed in its own way.
    pub(crate) fn new(attempts: Vec<Attempt>) -> Self {
        Self { cause: cause_of(&attempts), attempts, notes: Vec::new() }
    }

    /// Too many pulls begin already, so that there was no attempt; in the kubelet's words.
    pub(crate) fn throttled() -> Self {
        let error = Error::new(Kind::ResourceExhausted, "pull QPS exceeded");
        Self { attempts: vec![Attempt { source: None, error }], cause: Cause::Throttled, notes: Vec::new() }
    }

    /// The same, with what was left out of the attempts, and why.
    pub(crate) fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The attempts, in the order in which they were made.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Cause of the failure, as far as that matters for the next try.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// How long the registry wants to be left alone; `None`: it did not say.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.attempts.iter().filter_map(|attempt| attempt.error.retry_after()).max()
    }

    /// Returns how many bytes would have to be free for the pull; `None`: it failed for another reason, or that is not known.
    #[must_use]
    pub fn needed_bytes(&self) -> Option<u64> {
        self.attempts.iter().filter_map(|attempt| attempt.error.needed_bytes()).max()
    }

    /// Returns the first cause that has a name, even if there are other causes.
    fn named(&self) -> Option<NamedReason> {
        self.attempts.iter().find_map(|attempt| NamedReason::of(attempt.error.reason()?))
    }

    /// Text beyond the named cause.
    fn beyond(&self, named: NamedReason) -> String {
        let text = self.to_string();
        match text.strip_prefix(named.word) {
            Some(rest) => rest.to_owned(),
            None => format!(": {text}"),
        }
    }
}

/// The cause of several attempts: rate limits first, then causes that may pass by themselves, then the last.
fn cause_of(attempts: &[Attempt]) -> Cause {
    let causes = || attempts.iter().map(|attempt| Cause::of(&attempt.error));
    let limited = causes().find(|cause| *cause == Cause::RateLimited);
    limited
        .or_else(|| causes().find(|cause| cause.passes_by_itself()))
        .or_else(|| causes().next_back())
        .unwrap_or(Cause::Other)
}

impl fmt::Display for PullFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.attempts {
            [attempt] => f.write_str(attempt.error.message())?,
            attempts => {
                f.write_str("[")?;
                for (index, Attempt { source, error }) in attempts.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    match source {
                        Some(source) => write!(f, "{source}: {error}")?,
                        None => write!(f, "without credential: {error}")?,
                    }
                }
                f.write_str("]")?;
            }
        }
        if self.notes.is_empty() { Ok(()) } else { write!(f, " ({})", self.notes.join("; ")) }
    }
}

impl std::error::Error for PullFailure {}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
