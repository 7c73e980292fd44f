//! Requests of the manager to the puller, and the answers. Plain data.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use credentials::Candidate;
use cri_api::{ImageSpec, PodSandboxConfig, ProgressSink};
use oci::Reference;

use super::in_flight::WantedBy;
use crate::{Presence, PullFailure, RecordsError};

/// Called when a pull that waited gets its turn. Returns the image ref, if the image is present by now and the pod may use it.
pub(crate) type Recheck = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// Number of pulls that had ended at some time: see [`Puller::mark`](super::Puller::mark).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(pub(super) u64);

/// A requested pull.
pub(crate) struct Wanted {
    /// The image as it was requested: pull records know it by this name.
    pub(crate) image: String,
    /// The image as it is sent to the service.
    pub(crate) spec: ImageSpec,
    /// The parsed name.
    pub(crate) reference: Reference,
    /// The pod's sandbox, where there is one.
    pub(crate) sandbox: Option<PodSandboxConfig>,
    /// Credentials to try, in this order; none means one anonymous attempt.
    pub(crate) candidates: Arc<[Candidate]>,
    pub(crate) priority: i32,
    /// The origin of the request.
    pub(crate) by: WantedBy,
    /// Receives the progress.
    pub(crate) progress: ProgressSink,
    /// `None`: the image is to be pulled even if it is present.
    pub(crate) recheck: Option<Recheck>,
    /// The puller's mark before the caller inspected the image. Where pulls have ended since then, the result may be out of
    /// date, and [`Wanted::recheck`] is called even where the pull did not have to wait.
    pub(crate) mark: Mark,
    /// Presence as the caller saw it. After a pull with an unknown outcome, this distinguishes a pulled image from a preloaded
    /// one.
    pub(crate) before: Presence,
}

impl Wanted {
    /// Returns the registry of the image.
    pub(super) fn registry(&self) -> &str {
        self.reference.domain()
    }
}

#[cfg(test)]
impl Wanted {
    /// An anonymous pull of an image whose presence need not be checked.
    pub(super) fn new(spec: ImageSpec) -> Self {
        Self {
            image: spec.image.clone(),
            reference: Reference::parse(&spec.image).expect("a name"),
            spec,
            sandbox: None,
            candidates: Arc::new([]),
            priority: 0,
            by: WantedBy::Command,
            progress: ProgressSink::default(),
            recheck: None,
            mark: Mark::default(),
            before: Presence::NotChecked,
        }
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted")
            .field("image", &self.image)
            .field("sent", &self.spec.image)
            .field("candidates", &self.candidates)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// An image that was pulled, or was found present when the pull got its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulled {
    /// The image ref of the runtime.
    pub(crate) image_ref: String,
    /// Which of the request's candidates worked; `None`: an anonymous pull, or none at all.
    pub(crate) used: Option<usize>,
    /// Size in bytes, where it is known.
    pub(crate) size: Option<u64>,
    /// How long the pull took, every attempt included, without the wait for its turn.
    pub(crate) pulling: Duration,
    /// True if the image was present when the pull got its turn, so that nothing was pulled.
    pub(crate) found: bool,
    /// True if another request had asked for this pull before.
    pub(crate) coalesced: bool,
}

/// Reason why an image was not pulled.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PullFailed {
    /// Every attempt failed. A deadline that passed is the last of the causes.
    #[error(transparent)]
    Attempts(#[from] PullFailure),
    /// Too many pulls begin already; in the kubelet's words.
    #[error("pull QPS exceeded")]
    Throttled,
    /// Nothing was pulled, because it could not be written down beforehand.
    #[error("record the intent to pull")]
    Record(#[source] Arc<RecordsError>),
    /// The puller ends.
    #[error("the image manager is shutting down")]
    ShuttingDown,
}
