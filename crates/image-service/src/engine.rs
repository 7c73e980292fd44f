//! [`Engine`]: the embedded image service as a value: store, registry client, jobs in flight. Here is how it begins and
//! ends; the calls stand in [`crate::service`], the way of a pull in [`crate::pull`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::budget::Budget;
use crate::error::OpenError;
use crate::flight::Flights;
use crate::known::ContentHints;
use crate::leftovers::Leftovers;
use crate::options::{EngineOptions, Resume};
use crate::pull::coming::Coming;
use crate::pull::ready::ReadyLayers;
use crate::registries;
use crate::resume;
use crate::room::Room;
use crate::shared::{AfterUnclean, Shared};
use crate::signatures::PolicyFile;

/// The embedded image service. Clones share it. It needs a tokio runtime that lives as long as it does.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Shared>);

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
            let known = ContentHints::default();
            match store.images() {
                Ok(images) => known.replace(&images),
                // These are hints. A caller that wants to repair the store must be able to open it.
                Err(error @ store::StoreError::Corrupt(_)) => {
                    tracing::error!(%error, "cannot read all images: check and repair the store");
                }
                Err(error) => return Err(store::OpenError::Store(error).into()),
            }
            Ok::<_, OpenError>((store, known, policy))
        });
        let (store, known, policy) = opened.await.map_err(|_| OpenError::Thread)??;
        let leftovers = match &options.runtime {
            Some(target) => Leftovers::of(target.store.unfinished(target.workplace).await.map_err(OpenError::Runtime)?),
            None => Leftovers::default(),
        };
        let budget = Budget::new(options.memory);
        let client = registries::client(&options, Arc::new(budget.clone()));
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
            commits: AtomicU64::default(),
            stacking: tokio::sync::Mutex::default(),
            leftovers,
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

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.0.options).finish_non_exhaustive()
    }
}
