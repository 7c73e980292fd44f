//! Sources of pods: directories of manifests, a URL, standard input, an API server. [`Sources`] reads all of them
//! and keeps reading them; [`DesiredPods`] is their union, as the sync loop needs it. ConfigMaps and Secrets next to
//! the pods are stored in the [`DocumentStore`]. Starts and stops nothing; called by the agent.
//!
//! A manifest that cannot be read, is being written or is not valid never counts as removed: its last good content
//! stays in force, and without one its origin is *held*. One file is one unit: it counts as a whole or not at all. The
//! same holds for sources: one that cannot be read, because it is absent or not mounted, is not an empty one.

mod cluster;
mod directory;
mod disk;
mod documents;
mod files;
mod http;
mod inotify;
mod manifest;
mod merge;
mod once;
mod options;
mod store;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::identity::{API_SOURCE, CONFIG_ORIGIN_ANNOTATION};
pub use cluster::{ClusterPods, MIRROR_ANNOTATION};
use directory::Presence;
pub use http::UrlSource;
use manifest::ExpectedObjects;
pub use once::{Once, OnceError};
pub use options::{Fetch, FetchRequest};
pub use options::{MAX_MANIFEST, Parse, SourceOptions};
pub use store::DocumentStore;
use view::SourceView;
pub use view::{DesiredPods, RefusedManifest};

/// A source of pods. If two have the same pod, that of the first source counts.
#[derive(Clone)]
pub enum Source {
    /// A watched directory of manifests, or one file. Until it can be read, running pods are kept, because they may be from it.
    Path(PathBuf),
    /// The directory of manifests that applies without a setting: it need not exist, and pods that run from it are kept until it does.
    DefaultPath(PathBuf),
    /// A watched directory, or a file, with only ConfigMaps and Secrets.
    Documents(PathBuf),
    /// A URL, requested periodically.
    Url(UrlSource),
    /// A manifest that was read once, from a file, a URL or standard input.
    Once(Once),
    /// The pods that an API server has for this node.
    Cluster(watch::Receiver<ClusterPods>),
}

/// All sources of pods of a node, merged into one set of desired pods.
pub struct Sources {
    sources: Vec<Source>,
    options: SourceOptions,
    merge: merge::Merge,
}

impl Sources {
    /// Creates the sources without reading them.
    #[must_use]
    pub fn new(sources: Vec<Source>, options: SourceOptions) -> Self {
        let merge = merge::Merge::new(sources.len(), options.quiet, Arc::clone(&options.events));
        Self { sources, options, merge }
    }

    /// Returns the desired pods of all sources.
    #[must_use]
    pub fn desired(&self) -> watch::Receiver<DesiredPods> {
        self.merge.desired()
    }

    /// Returns the store of ConfigMaps and Secrets.
    #[must_use]
    pub fn documents(&self) -> DocumentStore {
        self.merge.documents()
    }

    /// Reads all sources repeatedly until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let loops = self.sources.iter().enumerate().map(|(index, source)| {
            let publish = move |view: SourceView| self.merge.update(index, view);
            async move {
                match source {
                    Source::Path(path) => {
                        directory::run(path, Presence::Required, ExpectedObjects::All, &self.options, &publish).await;
                    }
                    Source::DefaultPath(path) => {
                        directory::run(path, Presence::Optional, ExpectedObjects::All, &self.options, &publish).await;
                    }
                    Source::Documents(path) => {
                        directory::run(path, Presence::Required, ExpectedObjects::Documents, &self.options, &publish)
                            .await;
                    }
                    Source::Url(url) => http::run(url, &self.options, &publish).await,
                    Source::Once(once) => publish(once.view()),
                    Source::Cluster(pods) => {
                        let others = || self.merge.pods_of_other_sources(index);
                        cluster::run(pods, &self.options, &others, &publish).await;
                    }
                }
            }
        });
        let all = futures::future::join(futures::future::join_all(loops), self.merge.run());
        tokio::select! {
            () = stop.cancelled() => {}
            _ = all => {}
        }
    }
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
