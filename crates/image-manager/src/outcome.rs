//! The one table that turns an outcome into an event: type, reason and message are the kubelet's (v1.36), with one
//! difference: a failed inspection names the image, which the kubelet leaves empty.

use std::time::Duration;

use crate::go_duration::GoDuration;
use crate::{EnsureImageError, EventType};

/// What happened to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// A pull begins.
    Pulling,
    /// A pull succeeded.
    Pulled { pulling: Duration, with_waiting: Duration, size: Option<u64> },
    /// The image was here already.
    AlreadyPresent,
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
                    GoDuration(pulling),
                    GoDuration(with_waiting),
                    size.unwrap_or_default(),
                ),
            ),
            Self::AlreadyPresent => (Normal, "Pulled", format!("Container image {image:?} already present on machine")),
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
            },
        }
    }
}
