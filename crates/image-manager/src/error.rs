//! [`EnsureImageError`]: why an image could not be made present. Its [`reason`](EnsureImageError::reason) is what a
//! container's status shows while it waits, its [`message`](EnsureImageError::message) the text beside it; both are
//! the kubelet's words. `ImagePullBackOff` joins them with back-off.

use std::collections::BTreeSet;
use std::fmt;

use cri_api::{Error, Kind};
use oci::ImageNameError;

/// Prefixes by which a runtime names a cause, since a gRPC status cannot (cri-api, `pkg/errors`).
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

/// Why an image could not be made present.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsureImageError {
    /// The text is no image name.
    #[error("parse image name")]
    InvalidImageName {
        /// What is wrong; names the text.
        source: ImageNameError,
    },
    /// The runtime could not tell whether the image is present.
    #[error("inspect image {image:?}")]
    ImageInspect {
        /// The image as it was requested.
        image: String,
        /// What the runtime said.
        source: Error,
    },
    /// The policy is `Never`, and the image is absent.
    #[error("image {image:?} is not present, and its pull policy is Never")]
    ErrImageNeverPull {
        /// The image as it was requested.
        image: String,
    },
    /// Every attempt to pull it failed.
    #[error("pull image {image:?}")]
    Pull {
        /// The image as it was requested.
        image: String,
        /// The attempts.
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
            Self::Pull { source, .. } => match source.named() {
                Some(Named::RegistryUnavailable) => REGISTRY_UNAVAILABLE,
                Some(Named::SignatureValidationFailed) => SIGNATURE_VALIDATION_FAILED,
                None => "ErrImagePull",
            },
        }
    }

    /// The message beside the reason. It never holds a secret.
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
            Self::Pull { image, source } => {
                let Some(named) = source.named() else { return source.to_string() };
                format!("image pull failed for {image} because {}{}", named.because(), source.beyond(named))
            }
        }
    }

    /// What kind of failure it is, as far as a service told; for exit codes and metrics.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::InvalidImageName { .. } => Some(Kind::InvalidArgument),
            Self::ImageInspect { source, .. } => Some(source.kind()),
            Self::ErrImageNeverPull { .. } => None,
            Self::Pull { source, .. } => source.attempts().last().map(|attempt| attempt.error.kind()),
        }
    }
}

/// One try to pull, and how it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which of the request's credentials it was; `None`: anonymous.
    pub credential: Option<usize>,
    /// How it failed.
    pub error: Error,
}

/// Every try to pull failed. It shows each different cause once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    attempts: Vec<Attempt>,
}

/// A cause that the kubelet has a name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    RegistryUnavailable,
    SignatureValidationFailed,
}

impl Named {
    fn of(message: &str) -> Option<Self> {
        [Self::RegistryUnavailable, Self::SignatureValidationFailed]
            .into_iter()
            .find(|named| message.starts_with(named.prefix()))
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::RegistryUnavailable => REGISTRY_UNAVAILABLE,
            Self::SignatureValidationFailed => SIGNATURE_VALIDATION_FAILED,
        }
    }

    fn because(self) -> &'static str {
        match self {
            Self::RegistryUnavailable => "the registry is unavailable",
            Self::SignatureValidationFailed => "the signature validation failed",
        }
    }
}

impl PullFailure {
    pub(crate) fn new(attempts: Vec<Attempt>) -> Self {
        Self { attempts }
    }

    /// The attempts, in the order in which they were made.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Messages, each once, in the order in which they came.
    fn messages(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.attempts.iter().map(|attempt| attempt.error.message()).filter(|message| seen.insert(*message)).collect()
    }

    /// The first cause that has a name. Other causes beside it do not hide it.
    fn named(&self) -> Option<Named> {
        self.attempts.iter().find_map(|attempt| Named::of(attempt.error.message()))
    }

    /// What there is to say beyond the named cause.
    fn beyond(&self, named: Named) -> String {
        match *self.messages() {
            [message] => message.strip_prefix(named.prefix()).unwrap_or(message).to_owned(),
            _ => format!(": {self}"),
        }
    }
}

impl fmt::Display for PullFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.messages() {
            [message] => f.write_str(message),
            ref messages => write!(f, "[{}]", messages.join(", ")),
        }
    }
}

impl std::error::Error for PullFailure {}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
