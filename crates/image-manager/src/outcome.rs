//! The one table that turns an outcome into an event: type, reason and message are the kubelet's (v1.36), with one
//! difference: a failed inspection names the image, which the kubelet leaves empty.

use std::time::Duration;

use crate::{EnsureImageError, EventType};
use base::GoDuration;

/// Outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// A pull begins.
    Pulling,
    /// A pull succeeded.
    Pulled { pulling: Duration, with_waiting: Duration, size: Option<u64> },
    /// The image was already present.
    AlreadyPresent {
        /// Records say that the pod may have it.
        verified: bool,
    },
    /// Pull secrets that the pod names were not found.
    MissingSecrets(&'a [String]),
    /// The request failed.
    Failed(&'a EnsureImageError),
}

impl Outcome<'_> {
    /// Type, reason and message of the event about `image`, which is spelled as it was requested.
    pub(crate) fn event(self, image: &str) -> (EventType, &'static str, String) {
        use EventType::{Normal, Warning};
        match self {
            Self::Pulling => (Normal, "Pulling", format!("Pulling image {image:?}")),
            Self::Pulled { pulling, with_waiting, size } => (
                Normal,
                "Pulled",
                format!(
                    "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
                    GoDuration::from_millis_of(pulling),
                    GoDuration::from_millis_of(with_waiting),
                    size.unwrap_or_default(),
                ),
            ),
            Self::AlreadyPresent { verified } => {
                // Built by hand, because this is the message of every request for a present image.
                let rest = match verified {
                    true => " already present on machine and can be accessed by the pod",
                    false => " already present on machine",
                };
                let mut message = String::with_capacity(18 + image.len() + rest.len());
                message.push_str("Container image ");
                quote(image, &mut message);
                message.push_str(rest);
                (Normal, "Pulled", message)
            }
            Self::MissingSecrets(names) => (
                Warning,
                "FailedToRetrieveImagePullSecret",
                format!(
                    "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                    names.join(", ")
                ),
            ),
            Self::Failed(error) => match error {
                EnsureImageError::InvalidImageName { .. } | EnsureImageError::ImageInspect { .. } => {
                    (Warning, "InspectFailed", error.message())
                }
                EnsureImageError::ErrImageNeverPull { .. } => (Warning, "ErrImageNeverPull", error.message()),
                // The event does not repeat the failure, which has its own.
                EnsureImageError::BackOff { .. } => (Normal, "BackOff", format!("Back-off pulling image {image:?}")),
                EnsureImageError::Pull { source, .. } => {
                    (Warning, "Failed", format!("Failed to pull image {image:?}: {source}"))
                }
                EnsureImageError::Record { .. } | EnsureImageError::Credentials { .. } => {
                    (Warning, "Failed", format!("Failed to pull image {image:?}: {}", error.message()))
                }
            },
        }
    }
}

/// Appends `text` in quotes.
fn quote(text: &str, to: &mut String) {
    // No early exit, so that the compiler can vectorize the loop.
    let is_plain = |b: u8| matches!(b, b' '..=b'~') & (b != b'"') & (b != b'\\');
    if text.bytes().fold(true, |all, b| all & is_plain(b)) {
        to.push('"');
        to.push_str(text);
        to.push('"');
    } else {
        to.push_str(&format!("{text:?}"));
    }
}
