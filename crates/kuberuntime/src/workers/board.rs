//! [`Board`]: how every pod is, for people and for whoever waits for pods. Written by workers, read without waiting for any
//! of them. It knows no runtime.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::PodView;
use crate::labels::Owner;

/// How every pod is.
pub(super) struct Board {
    /// Guards the views, by namespace, name and uid.
    views: Mutex<BTreeMap<(String, String, String), Arc<PodView>>>,
    /// Counts changes.
    version: watch::Sender<u64>,
}

fn key(owner: &Owner) -> (String, String, String) {
    (owner.namespace.clone(), owner.name.clone(), owner.uid.clone())
}

impl Board {
    pub(super) fn new() -> Self {
        Self { views: Mutex::default(), version: watch::Sender::new(0) }
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<(String, String, String), Arc<PodView>>> {
        self.views.lock()
    }

    /// All pods, by namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<PodView>> {
        self.views().values().cloned().collect()
    }

    /// Shows a pod so.
    pub(super) fn put(&self, owner: &Owner, view: Arc<PodView>) {
        self.views().insert(key(owner), view);
        self.version.send_modify(|version| *version += 1);
    }

    /// A pod is gone.
    pub(super) fn take(&self, owner: &Owner) {
        self.views().remove(&key(owner));
        self.version.send_modify(|version| *version += 1);
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}
