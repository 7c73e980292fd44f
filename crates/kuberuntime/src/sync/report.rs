//! [`SyncReport`]: what a sync came to.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::actions::PodActions;
use crate::status::api::Waiting;

/// What a sync came to.
#[derive(Clone, Debug, Default)]
pub struct SyncReport {
    /// What was to be done.
    pub actions: PodActions,
    /// What starts came to, by containers: `None`, it went well; why it waits otherwise. Containers that nobody tried to
    /// start are not named.
    pub starts: BTreeMap<String, Option<Waiting>>,
    /// When the first container that waits out its back-off may be started.
    pub retry_at: Option<Timestamp>,
    /// The runtime's network is not ready.
    pub network_not_ready: bool,
    /// How long it waited for images.
    pub waited_for_images: std::time::Duration,
    /// What failed, for people; empty: it went well.
    pub errors: Vec<String>,
    /// It was asked to stop before it was done.
    pub cancelled: bool,
}
