//! [`PodView`]: one pod as the agent reports it: manifest, status, and the state of its worker.

use std::sync::Arc;

use crate::pod::Pod;
use crate::status::api::PodStatus;

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It waits for an earlier pod of its name to be gone, or for the runtime to answer at all.
    Queued,
    /// It is kept as it should be.
    Syncing,
    /// It is being ended.
    Terminating,
    /// It has ended, and nothing of it runs.
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
    /// What it should be. Of one that is being deleted it says so, and of one that was found in the runtime it is what can
    /// be said of it.
    pub pod: Arc<Pod>,
    /// How it is, or was when the runtime last answered.
    pub status: PodStatus,
    /// Where it is on its way.
    pub state: WorkerState,
    /// What the last look at it asked for, in words.
    pub actions: String,
    /// What went wrong the last time, if anything did.
    pub error: Option<String>,
}
