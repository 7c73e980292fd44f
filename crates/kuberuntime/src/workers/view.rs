//! [`PodView`]: one pod as the agent reports it: manifest, status, and the state of its worker.

use std::sync::Arc;

use crate::pod::Pod;
use crate::status::api::PodStatus;

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Waiting for an earlier pod of the same name to be gone, or for the first answer of the runtime.
    Queued,
    /// Kept as it should be.
    Syncing,
    /// Being ended.
    Terminating,
    /// Ended: nothing of the pod runs.
    Terminated,
}

impl WorkerState {
    /// In one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Syncing => "Syncing",
            Self::Terminating => "Terminating",
            Self::Terminated => "Terminated",
        }
    }
}

/// A pod, for people.
#[derive(Clone, Debug)]
pub struct PodView {
    /// The pod as it should be. Of a pod that is being deleted it has the deletion timestamp; of a pod that no source
    /// has it is made of what the runtime shows.
    pub pod: Arc<Pod>,
    /// How it is, or was when the runtime last answered.
    pub status: PodStatus,
    /// Where it is on its way.
    pub state: WorkerState,
    /// Actions that the last observation asked for, in words.
    pub actions: String,
    /// Last failure, if there is one.
    pub error: Option<String>,
}
