//! [`Engine`]: the embedded image service as a value: store, registry client, jobs in flight. Here is how it begins and
//! ends; the calls stand in [`crate::service`], the way of a pull in [`crate::pull`].

use std::sync::Arc;

use bytes::Bytes;
use cri_api::{Error, Kind, Reason, Result};
use oci::Digest;
use registry::Client;
use store::{ImageRecord, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::budget::Budget;
use crate::certs_d;
use crate::check::AfterUnclean;
use crate::error::{self, OpenError};
use crate::flight::Flights;
use crate::known::Known;
use crate::options::EngineOptions;
use crate::origin::Origin;
use crate::pull::PullKey;
use crate::pull::coming::Coming;
use crate::pull::layer::{LayerKey, ReadyLayer, ReadyLayers};
use crate::resume::{self, Resume};
use crate::room::{Need, Room};
use crate::signatures::PolicyFile;

/// The embedded image service. Clones share it. It needs a tokio runtime that lives as long as it does.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Shared>);

/// What everything in an engine shares.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) options: EngineOptions,
    pub(crate) known: Known,
    /// `None`: every image is accepted.
    pub(crate) policy: Option<PolicyFile>,
    pub(crate) background: Background,
    pub(crate) pulls: Flights<PullKey, Digest>,
    pub(crate) layers: Flights<LayerKey, ReadyLayer>,
    /// Configs on their way, by whom they are asked from and digest.
    pub(crate) configs: Flights<(Origin, Digest), Bytes>,
    /// Through which blob each layer in flight comes.
    pub(crate) coming: Coming,
    /// What jobs made and no commit has taken yet.
    pub(crate) ready: ReadyLayers,
    /// The memory of layers in flight.
    pub(crate) budget: Budget,
    /// What layers in flight still need on the disk.
    pub(crate) room: Room,
    pub(crate) after_unclean: AfterUnclean,
    /// Cancelled at shutdown; parent of every job's token.
    pub(crate) token: CancellationToken,
    tracker: TaskTracker,
}

impl Engine {
    /// Opens the store and makes the engine. Nothing is asked of any registry yet. After an unclean stop, what was
    /// written last is checked in the background.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(options: EngineOptions) -> std::result::Result<Self, OpenError> {
        options.check()?;
        let tracker = TaskTracker::new();
        let background = Background::new(tracker.clone());
        let (root, mut store_options) = (options.root.clone(), options.store.clone());
        let now = (options.clock)();
        store_options.unfinished_since = (options.resume != Resume::Off).then(|| resume::kept_since(now));
        let policy = options.signature_policy.clone();
        let opened = background.start(move || {
            let policy = policy.map(|path| PolicyFile::open(&path).map_err(OpenError::SignaturePolicy)).transpose()?;
            let store = Store::open(&root, store_options)?;
            store.note_clock(now);
            let known = Known::default();
            match store.images() {
                Ok(images) => known.replace(&images),
                // These are hints; and who wants to repair the store must be able to open it.
                Err(error @ store::StoreError::Corrupt(_)) => {
                    tracing::error!(%error, "not all images can be read: check and repair the store");
                }
                Err(error) => return Err(store::OpenError::Store(error).into()),
            }
            Ok::<_, OpenError>((store, known, policy))
        });
        let (store, known, policy) = opened.await.map_err(|_| OpenError::Thread)??;
        let budget = Budget::new(options.memory);
        let client = Client::new(registry::Options {
            memory: Arc::new(budget.clone()),
            user_agent: options.user_agent.clone(),
            retry: options.retry.clone(),
            proxy: options.proxy.clone(),
            ranges: options.ranges.clone(),
            bandwidth: options.bandwidth,
            allowed_targets: options.allowed_targets.clone(),
            limits: registry::Limits {
                manifest: options.limits.manifest_bytes,
                config: options.limits.config_bytes,
                ..registry::Limits::default()
            },
            ..registry::Options::new(certs_d::loader(options.hosts_roots.clone()))
        });
        let token = CancellationToken::new();
        let shared = Arc::new(Shared {
            store,
            client,
            known,
            policy,
            background,
            pulls: Flights::new(tracker.clone(), token.clone()),
            layers: Flights::new(tracker.clone(), token.clone()),
            configs: Flights::new(tracker.clone(), token.clone()),
            coming: Coming::default(),
            ready: ReadyLayers::default(),
            budget,
            room: Room::new(options.keep_blobs),
            after_unclean: AfterUnclean::default(),
            token,
            tracker,
            options,
        });
        shared.check_after_unclean_stop();
        Ok(Self(shared))
    }

    /// The store under this engine. Its calls block.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Cancels everything in flight, refuses what comes later, and answers when every task and thread of the engine has
    /// ended and no private directory is left.
    pub async fn shutdown(&self) {
        self.0.token.cancel();
        self.0.settled().await;
    }

    /// Answers when nothing is going on in the background, jobs included. More may begin at once.
    pub async fn settled(&self) {
        self.0.settled().await;
    }

    /// How many pulls and how many layers are in flight.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        (self.0.pulls.len(), self.0.layers.len())
    }
}

impl Shared {
    async fn settled(&self) {
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
                    tracing::debug!(image = text, %why, "it is here, and may not be used");
                    Ok(None)
                }
            })
            .await
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.0.options).finish_non_exhaustive()
    }
}
