//! [`SyncReport`]: what a sync came to.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::actions::PodActions;
use crate::status::api::Waiting;

/// Result of a sync.
#[derive(Clone, Debug, Default)]
pub struct SyncReport {
    /// Actions that were to be done.
    pub actions: PodActions,
    /// Outcomes of starts, by container: `None` for a success, otherwise the reason of the waiting state. Containers
    /// whose start was not tried are absent.
    pub starts: BTreeMap<String, Option<Waiting>>,
    /// When the first container that waits out its back-off may be started.
    pub retry_at: Option<Timestamp>,
    /// The runtime's network is not ready.
    pub network_not_ready: bool,
    /// How long it waited for images.
    pub waited_for_images: std::time::Duration,
    /// Failures, for people; empty after a success.
    pub errors: Vec<String>,
    /// True if a stop was requested before the sync was done.
    pub cancelled: bool,
}
