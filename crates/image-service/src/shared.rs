//! [`Shared`]: the state of an engine that its calls, its pulls and their jobs share, and the questions that several of them ask: which image a
//! text stands for, and whether new work may begin. It starts nothing; [`crate::engine`] makes it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use cri_api::engine::CheckReport;
use cri_api::{Error, Kind, Reason, Result};
use oci::Digest;
use registry::Client;
use store::{ImageRecord, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::budget::Budget;
use crate::error;
use crate::flight::Flights;
use crate::known::ContentHints;
use crate::leftovers::Leftovers;
use crate::options::EngineOptions;
use crate::origin::Origin;
use crate::pull::coming::Coming;
use crate::pull::key::{LayerKey, PullKey};
use crate::pull::ready::{ReadyLayer, ReadyLayers};
use crate::room::{Need, Room};
use crate::signatures::PolicyFile;

/// The state that all calls and jobs of an engine share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) options: EngineOptions,
    pub(crate) known: ContentHints,
    /// `None`: every image is accepted.
    pub(crate) policy: Option<PolicyFile>,
    pub(crate) background: Background,
    pub(crate) pulls: Flights<PullKey, Digest>,
    pub(crate) layers: Flights<LayerKey, Option<ReadyLayer>>,
    /// Configs in flight, by the origin that is asked and by digest.
    pub(crate) configs: Flights<(Origin, Digest), Bytes>,
    /// Through which blob each layer in flight comes.
    pub(crate) coming: Coming,
    /// Layers that jobs made and no commit has taken yet.
    pub(crate) ready: ReadyLayers,
    /// Number of commits since the start: where it has not changed, the store has no new layers.
    pub(crate) commits: AtomicU64,
    /// Held by the pull that puts layers into a runtime's store.
    pub(crate) stacking: tokio::sync::Mutex<()>,
    /// Images that were begun there and never ended.
    pub(crate) leftovers: Leftovers,
    /// The memory of layers in flight.
    pub(crate) budget: Budget,
    /// Space that layers in flight still need on the disk.
    pub(crate) room: Room,
    pub(crate) after_unclean: AfterUnclean,
    /// Cancelled at shutdown; parent of every job's token.
    pub(crate) token: CancellationToken,
    pub(crate) tracker: TaskTracker,
}

impl Shared {
    /// Waits until every task and blocking thread has ended, and lets new ones begin unless the engine is shut down.
    pub(crate) async fn settled(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        if !self.token.is_cancelled() {
            self.tracker.reopen();
        }
    }

    /// Refuses new work after shutdown.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.token.is_cancelled() {
            return Err(Error::new(Kind::Unavailable, "the image service is shutting down"));
        }
        Ok(())
    }

    /// The error of a pull, with what it would have needed where it ran out of space.
    pub(crate) async fn tell_need(&self, error: Error, mut need: Need) -> Error {
        if need.free.is_none() && error.reason() == Some(Reason::QuotaExceeded) {
            let store = self.store.clone();
            let room = self.background.run(move || store.room().map_err(|e| error::from_store(store.root(), &e))).await;
            need.free = room.ok().flatten();
        }
        error::with_need(error, need)
    }

    /// The image that a text stands for, whether its layers are whole or not.
    pub(crate) async fn find(&self, text: String) -> Result<Option<ImageRecord>> {
        let store = self.store.clone();
        self.background.run(move || store.resolve(&text).map_err(|e| error::from_resolve(store.root(), &e))).await
    }

    /// The image that a text stands for, if its layers are whole.
    pub(crate) async fn find_whole(&self, text: String) -> Result<Option<ImageRecord>> {
        let store = self.store.clone();
        self.background
            .run(move || {
                let image = store.resolve(&text).map_err(|e| error::from_resolve(store.root(), &e))?;
                Ok(image.filter(|image| store.image_is_whole(image)))
            })
            .await
    }

    /// The same, if the signature policy lets it be used by this text: by this name, or by any of its names where the text is
    /// an id.
    pub(crate) async fn find_usable(self: &Arc<Self>, text: String) -> Result<Option<ImageRecord>> {
        let Some(image) = self.find_whole(text.clone()).await? else { return Ok(None) };
        if self.policy.is_none() {
            return Ok(Some(image));
        }
        let shared = Arc::clone(self);
        self.background
            .run(move || match shared.objection_to_use(&image, &text)? {
                None => Ok(Some(image)),
                Some(why) => {
                    tracing::debug!(image = text, reason = %why, "signature policy refuses a present image");
                    Ok(None)
                }
            })
            .await
    }
}

/// Report of the check after an unclean stop, once that has ended. Locked while the check runs.
#[derive(Default)]
pub(crate) struct AfterUnclean(pub(crate) tokio::sync::Mutex<Option<CheckReport>>);
