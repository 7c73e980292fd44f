//! [`PodBoard`]: one [`PodView`] for each pod, for clients and for callers that wait for pods. Written by workers, read
//! without waiting for any of them. Makes no calls of the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::lock::Mutex;
use tokio::sync::watch;

use crate::labels::PodOwner;
use crate::pod::Pod;
use crate::status::api::PodStatus;

/// The published views of all pods.
pub(super) struct PodBoard {
    /// Guards the views, by namespace, name and uid.
    views: Mutex<BTreeMap<(String, String, String), Arc<PodView>>>,
    /// Counts changes.
    version: watch::Sender<u64>,
}

fn key(owner: &PodOwner) -> (String, String, String) {
    (owner.namespace.clone(), owner.name.clone(), owner.uid.clone())
}

impl PodBoard {
    pub(super) fn new() -> Self {
        Self { views: Mutex::default(), version: watch::Sender::new(0) }
    }

    /// Returns all pods, by namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<PodView>> {
        self.views.lock().values().cloned().collect()
    }

    /// Shows a pod so.
    pub(super) fn put(&self, owner: &PodOwner, view: Arc<PodView>) {
        self.views.lock().insert(key(owner), view);
        self.version.send_modify(|version| *version += 1);
    }

    /// Removes the view of a pod.
    pub(super) fn take(&self, owner: &PodOwner) {
        self.views.lock().remove(&key(owner));
        self.version.send_modify(|version| *version += 1);
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// State of a pod's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Waiting for the removal of an earlier pod of the same name, or for the first answer of the runtime.
    Queued,
    /// Kept as it should be.
    Syncing,
    /// Being ended.
    Terminating,
    /// Ended: nothing of the pod runs.
    Terminated,
}

impl WorkerState {
    /// Returns the state in one word.
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

/// A published pod.
#[derive(Clone, Debug)]
pub struct PodView {
    /// The pod as it should be. Of a pod that is being deleted it has the deletion timestamp; of a pod that no source
    /// has it is made of what the runtime shows.
    pub pod: Arc<Pod>,
    /// Status of the pod, or that of the runtime's last answer.
    pub status: PodStatus,
    /// True once the runtime has shown it to this process.
    pub observed: bool,
    /// State of the pod's worker.
    pub state: WorkerState,
    /// Actions that the last observation asked for, in words.
    pub actions: String,
    /// Last failure, if there is one.
    pub error: Option<String>,
}
