//! [`Content`]: the images and layers of an engine: its store, hints about the content by digests that the store has no index
//! for, and the leftovers of pulls into a runtime's store. Answers which image a name or an ID stands for. Knows no job, no
//! limit and no policy.

use std::sync::atomic::{AtomicU64, Ordering};

use cri_api::engine::CheckReport;
use cri_api::{Error, Reason, Result};
use oci::ReferenceOrId;
use store::{ImageRecord, Store, StoreError};

use crate::background::Background;
use crate::budgets::SpaceRequirement;
use crate::content_hints::ContentHints;
use crate::error;
use crate::leftovers::Leftovers;
use crate::options::Clock;
use crate::origin::SharedContent;

/// The images and layers of an engine.
pub(crate) struct Content {
    pub(crate) store: Store,
    pub(crate) hints: ContentHints,
    pub(crate) background: Background,
    /// Images that were begun in a runtime's store and never ended.
    pub(crate) leftovers: Leftovers,
    /// How pulls may use content of other repositories.
    pub(crate) sharing: SharedContent,
    /// True if blobs are kept next to their layers.
    pub(crate) keeps_blobs: bool,
    pub(crate) clock: Clock,
    /// Report of the check after an unclean stop, once it has ended. Locked while the check runs.
    pub(crate) after_unclean: tokio::sync::Mutex<Option<CheckReport>>,
    /// Number of commits since the start.
    commits: AtomicU64,
}

/// Number of commits at some time: while it is unchanged, the store has no new layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitMark(u64);

/// Settings of the content of an engine.
pub(crate) struct ContentOptions {
    pub(crate) sharing: SharedContent,
    pub(crate) keeps_blobs: bool,
    pub(crate) clock: Clock,
}

impl Content {
    pub(crate) fn new(
        store: Store,
        hints: ContentHints,
        background: Background,
        leftovers: Leftovers,
        options: ContentOptions,
    ) -> Self {
        let ContentOptions { sharing, keeps_blobs, clock } = options;
        Self {
            store,
            hints,
            background,
            leftovers,
            sharing,
            keeps_blobs,
            clock,
            after_unclean: tokio::sync::Mutex::default(),
            commits: AtomicU64::default(),
        }
    }

    /// Calls the store on a blocking thread.
    pub(crate) async fn on_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> std::result::Result<T, StoreError> + Send + 'static,
    ) -> Result<T> {
        let store = self.store.clone();
        self.background.run(move || work(&store).map_err(|e| error::from_store(store.root(), &e))).await
    }

    /// Returns the image with this name or ID, even if its layers are not all present.
    pub(crate) async fn find(&self, named: ReferenceOrId) -> Result<Option<ImageRecord>> {
        let store = self.store.clone();
        self.background.run(move || store.resolve(&named).map_err(|e| error::from_resolve(store.root(), &e))).await
    }

    /// Returns the image with this name or ID if all its layers are present.
    pub(crate) async fn find_whole(&self, named: ReferenceOrId) -> Result<Option<ImageRecord>> {
        let store = self.store.clone();
        self.background
            .run(move || {
                let image = store.resolve(&named).map_err(|e| error::from_resolve(store.root(), &e))?;
                Ok(image.filter(|image| store.image_is_whole(image)))
            })
            .await
    }

    /// Returns a mark that changes with every commit.
    pub(crate) fn commit_mark(&self) -> CommitMark {
        CommitMark(self.commits.load(Ordering::Acquire))
    }

    /// Records that a commit may have added layers.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Release);
    }

    /// Returns the wall clock, in nanoseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Adds to the error of a pull the space that it would have needed, if it ran out of space.
    pub(crate) async fn with_space_requirement(&self, error: Error, mut requirement: SpaceRequirement) -> Error {
        if requirement.free.is_none() && error.reason() == Some(Reason::QuotaExceeded) {
            requirement.free = self.on_store(|store| store.room()).await.ok().flatten();
        }
        requirement.add_to(error)
    }
}
