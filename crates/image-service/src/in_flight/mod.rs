//! [`InFlight`]: the work that callers of an engine share while it runs: pulls, layers and configs, each once by digest and
//! access, and the layers that are unpacked and not yet committed. Every job belongs to one tracker, and is cancelled when its
//! last waiter leaves or the engine shuts down. Knows no content and no limit.

mod flights;
mod key;
mod layers;
mod unpacked;

use bytes::Bytes;
use cri_api::{Error, Kind, Result};
use oci::Digest;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use flights::{Flights, JobContext, Ticket};
pub(crate) use key::{LayerKey, PullKey};
pub(crate) use layers::{InFlightLayers, UnresolvedPull};
pub(crate) use unpacked::{ReadyLayer, ReadyLayers, UnpackedLayerGuard};

use crate::origin::Origin;

/// The work that callers of an engine share while it runs.
pub(crate) struct InFlight {
    pub(crate) pulls: Flights<PullKey, Digest>,
    /// Layer jobs; one that finds its layer committed by another pull has no layer to return.
    pub(crate) layers: Flights<LayerKey, Option<ReadyLayer>>,
    /// Configs, by the origin that they are fetched from and their digest.
    pub(crate) configs: Flights<(Origin, Digest), Bytes>,
    /// The layer job of each diff ID.
    pub(crate) by_diff_id: InFlightLayers,
    /// Layers that jobs have unpacked and no commit has taken yet.
    pub(crate) ready: ReadyLayers,
    /// Cancelled at shutdown; parent of every job's token.
    shutdown: CancellationToken,
    tracker: TaskTracker,
}

impl InFlight {
    /// Makes the tables of an engine whose tasks and threads belong to `tracker`.
    pub(crate) fn new(tracker: TaskTracker) -> Self {
        let shutdown = CancellationToken::new();
        Self {
            pulls: Flights::new(tracker.clone(), shutdown.clone()),
            layers: Flights::new(tracker.clone(), shutdown.clone()),
            configs: Flights::new(tracker.clone(), shutdown.clone()),
            by_diff_id: InFlightLayers::default(),
            ready: ReadyLayers::default(),
            shutdown,
            tracker,
        }
    }

    /// Refuses new work after shutdown.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.shutdown.is_cancelled() {
            return Err(Error::new(Kind::Unavailable, "the image service is shutting down"));
        }
        Ok(())
    }

    /// Returns a token for work outside the tables, which ends at shutdown.
    pub(crate) fn child_token(&self) -> CancellationToken {
        self.shutdown.child_token()
    }

    /// Cancels all jobs, refuses new ones, and waits until every task and blocking thread has ended.
    pub(crate) async fn shutdown(&self) {
        self.shutdown.cancel();
        self.settled().await;
    }

    /// Waits until every task and blocking thread has ended, and accepts new ones unless the engine is shut down.
    pub(crate) async fn settled(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        if !self.shutdown.is_cancelled() {
            self.tracker.reopen();
        }
    }
}
