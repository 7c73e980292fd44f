//! Sources of pods: directories of manifests, an address, standard input, an API server. [`Sources`] reads all of them
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

/// A source of pods. Where two have the same pod, the first source counts.
#[derive(Clone)]
pub enum Source {
    /// A directory of manifests, or one file, watched. Until it can be read, pods that run already are left alone, because they may be its own.
    Path(PathBuf),
    /// The same for a directory that no setting names: it need not exist, and pods that run from it already are left alone as long as it does not.
    DefaultPath(PathBuf),
    /// A directory or a file of ConfigMaps and Secrets and nothing else, watched.
    Documents(PathBuf),
    /// An address, asked again and again.
    Url(UrlSource),
    /// A manifest that was read once, from a file or from standard input.
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
    /// Reads nothing yet.
    #[must_use]
    pub fn new(sources: Vec<Source>, options: SourceOptions) -> Self {
        let merge = merge::Merge::new(sources.len(), options.quiet, Arc::clone(&options.events));
        Self { sources, options, merge }
    }

    /// Pods of all sources.
    #[must_use]
    pub fn desired(&self) -> watch::Receiver<DesiredPods> {
        self.merge.desired()
    }

    /// ConfigMaps and Secrets.
    #[must_use]
    pub fn documents(&self) -> DocumentStore {
        self.merge.documents()
    }

    /// Reads all sources repeatedly until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let loops = self.sources.iter().enumerate().map(|(index, source)| {
            let tell = move |view: SourceView| self.merge.update(index, view);
            async move {
                match source {
                    Source::Path(path) => {
                        directory::run(path, Presence::Required, ExpectedObjects::All, &self.options, &tell).await;
                    }
                    Source::DefaultPath(path) => {
                        directory::run(path, Presence::Optional, ExpectedObjects::All, &self.options, &tell).await;
                    }
                    Source::Documents(path) => {
                        directory::run(path, Presence::Required, ExpectedObjects::Documents, &self.options, &tell)
                            .await;
                    }
                    Source::Url(url) => http::run(url, &self.options, &tell).await,
                    Source::Once(once) => tell(once.view()),
                    Source::Cluster(pods) => {
                        let others = || self.merge.pods_of_others(index);
                        cluster::run(pods, &self.options, &others, &tell).await;
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
