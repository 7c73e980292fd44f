//! Inputs and outputs of back-off: [`BackoffOptions`], [`BackoffEntry`], [`BackoffSelector`]. Plain data; it knows no
//! rule. The binary makes options and selectors, and shows entries.

use std::time::Duration;

use tokio::time::Instant;

use crate::Cause;

/// How long a pull that failed is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffOptions {
    /// After the first failure.
    pub initial: Duration,
    /// At most; what is older than twice this is forgotten.
    pub max: Duration,
    /// True if the cause counts. If not, everything doubles up to `max`, as in the kubelet.
    pub by_cause: bool,
    /// With `by_cause`: at most so long for causes that pass by themselves, such as a registry that is down.
    pub passing_max: Duration,
    /// With `by_cause`: what a registry asks for with `Retry-After` is kept up to this.
    pub retry_after_max: Duration,
    /// True if every check within a window records an event, as in the kubelet, and not only the first.
    pub event_every_check: bool,
    /// At most so many entries; beyond that the one that ends first makes room.
    pub max_entries: usize,
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(300),
            by_cause: true,
            passing_max: Duration::from_secs(60),
            retry_after_max: Duration::from_secs(3600),
            event_every_check: false,
            max_entries: 10_000,
        }
    }
}

/// A pod that waits before an image is pulled for it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffEntry {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod: another pod of the same name waits on its own.
    pub uid: String,
    /// The image as it was requested.
    pub image: String,
    /// Host of the image's registry, with its port where there is one: `docker.io`.
    pub registry: String,
    /// Cause of the last failure.
    pub cause: Cause,
    /// Reason and message of the last failure.
    pub message: String,
    /// How many pulls failed in a row, as far as they count; 0: only the registry's own wish holds this pod.
    pub failures: u32,
    /// How long the window is.
    pub window: Duration,
    /// When it ends.
    pub until: Instant,
    /// How long that still is; zero: the next request pulls.
    pub remaining: Duration,
}

/// Whose back-off is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackoffSelector {
    /// All entries.
    All,
    /// Entries of an image, as it was requested.
    Image(String),
    /// Entries of a pod.
    Pod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod: all pods that have had it count.
        name: String,
    },
    /// Entries of the pod with this uid.
    Uid(String),
    /// Entries of a registry's images.
    Registry(String),
}
