//! [`Engine`]: the embedded image service as a value. Opens and closes it; the calls are in [`crate::service`] and
//! [`crate::image_engine`], the pulls in [`crate::pull`].

use std::sync::Arc;

use store::Store;
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::budgets::{Budgets, MemoryBudget};
use crate::content::{Content, ContentOptions};
use crate::content_hints::ContentHints;
use crate::destination::Destination;
use crate::destination::own_store::OwnStore;
use crate::destination::runtime_store::RuntimeStoreDestination;
use crate::error::OpenError;
use crate::in_flight::InFlight;
use crate::leftovers::Leftovers;
use crate::options::{EngineOptions, Resume};
use crate::parts::EngineParts;
use crate::registries;
use crate::signatures::{ImagePolicy, PolicyFile};
use crate::source::resume;

/// The embedded image service. Clones share it. It needs a tokio runtime that lives as long as it does.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<EngineParts>);

impl Engine {
    /// Opens the store and makes the engine, without a request to a registry. After an unclean stop, the content that was written
    /// last is checked in the background.
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
            let hints = ContentHints::default();
            match store.images() {
                Ok(images) => hints.replace(&images),
                // Hints are not needed to open the store, which a caller may want to repair.
                Err(error @ store::StoreError::Corrupt(_)) => {
                    tracing::error!(%error, "cannot read all images: check and repair the store");
                }
                Err(error) => return Err(store::OpenError::Store(error).into()),
            }
            Ok::<_, OpenError>((store, hints, policy))
        });
        let (store, hints, policy) = opened.await.map_err(|_| OpenError::Thread)??;
        let leftovers = match &options.runtime {
            Some(target) => {
                Leftovers::new(target.store.unfinished(target.workplace).await.map_err(OpenError::Runtime)?)
            }
            None => Leftovers::default(),
        };
        let content_options = ContentOptions {
            sharing: options.shared_content,
            keeps_blobs: options.keep_blobs,
            clock: Arc::clone(&options.clock),
        };
        let content = Arc::new(Content::new(store, hints, background, leftovers, content_options));
        let memory = MemoryBudget::new(options.memory);
        let client = registries::client(&options, Arc::new(memory.clone()));
        let destination: Arc<dyn Destination> = match &options.runtime {
            Some(target) => Arc::new(RuntimeStoreDestination::new(
                &content,
                target.clone(),
                options.platform.clone(),
                options.limits.config_bytes,
            )),
            None => Arc::new(OwnStore::new(&content)),
        };
        let parts = EngineParts {
            in_flight: InFlight::new(tracker),
            budgets: Budgets::new(&options, memory, client),
            policy: ImagePolicy::new(policy, &content),
            content,
            options,
            destination,
        };
        parts.content.check_after_unclean_stop();
        Ok(Self(Arc::new(parts)))
    }

    /// Returns the store of this engine. Its calls block.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.content.store
    }

    /// Cancels everything in flight, refuses new work, and waits until every task and thread of the engine has ended and no
    /// private directory is left.
    pub async fn shutdown(&self) {
        self.0.in_flight.shutdown().await;
    }

    /// Waits until every job and all background work has ended. More may begin at once.
    pub async fn settled(&self) {
        self.0.in_flight.settled().await;
    }

    /// Returns the number of pulls and of layers in flight.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        (self.0.in_flight.pulls.len(), self.0.in_flight.layers.len())
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.0.options).finish_non_exhaustive()
    }
}
