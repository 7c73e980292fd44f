//! Where pods come from: directories of manifests, an address, standard input; later an API server. [`Sources`] reads them
//! all and keeps them read; [`DesiredPods`] is all of them together, as the sync loop wants to know it. ConfigMaps and
//! Secrets that lie beside the pods go to the [`DocumentStore`]. Starts and stops nothing; called by the agent.
//!
//! A manifest that cannot be read, is being written or is not valid never looks like one that is gone: what was last good
//! in it goes on, and where nothing was, its origin is *held*. One file is one unit: it counts as a whole or not at all.

mod directory;
mod disk;
mod documents;
mod files;
mod http;
mod inotify;
mod manifest;
mod merge;
mod once;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use image_manager::{EventRecorder, WallClock};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pod::Pod;
pub use http::{Fetch, FetchRequest, UrlSource};
pub use once::{Once, OnceError};
pub use store::DocumentStore;

/// On pods, and so on their sandboxes: the absolute path or the address of the manifest.
pub const CONFIG_ORIGIN_ANNOTATION: &str = "imagelet.dev/config.origin";

/// The largest manifest that is read, as in the kubelet.
pub const MAX_MANIFEST: usize = 10 << 20;

/// Reads the documents of a text, YAML or JSON, those that are empty left out. The error is for people.
pub type Parse = Arc<dyn Fn(&[u8]) -> Result<Vec<Value>, String> + Send + Sync>;

/// The pods that should be on this node, of all sources.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// Pods by uid.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Whether every source has told what it has. Before that, a pod that is not in here may only be late.
    pub ready: bool,
    /// Origins whose manifests are there and cannot be read or are not valid now, and of which nothing better is known:
    /// what runs from them stays as it is.
    pub held: BTreeSet<String>,
    /// What was refused, for people.
    pub refused: Vec<RefusedManifest>,
}

/// A manifest that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedManifest {
    /// Path or address.
    pub origin: String,
    /// Namespace and name of the pod, where they are known.
    pub pod: Option<String>,
    /// Why.
    pub reason: String,
}

/// One source. Where two have the same pod, the one that stands first counts.
#[derive(Clone)]
pub enum Source {
    /// A directory of manifests, or one file, watched. It need not be there.
    Path(PathBuf),
    /// A directory or a file of ConfigMaps and Secrets and nothing else, watched.
    Documents(PathBuf),
    /// An address, asked again and again.
    Url(UrlSource),
    /// What was read once, from a file or from standard input.
    Once(Once),
    // An API server is one more source: it has a loop of its own beside those in `Sources::run`, and tells a `View`.
}

/// What reading needs.
#[derive(Clone)]
pub struct SourceOptions {
    /// Name of the node: static pods have it in theirs.
    pub node: String,
    /// Reader of YAML and JSON.
    pub parse: Parse,
    /// Asks addresses.
    pub fetch: Fetch,
    /// Where events of pods that are not valid go.
    pub events: Arc<dyn EventRecorder>,
    /// The time of day, for the annotation that says when a pod was first seen, and for how old files are.
    pub wall_clock: WallClock,
    /// How often directories are listed, whatever was heard of them.
    pub file_check: Duration,
    /// How often addresses are asked.
    pub http_check: Duration,
    /// How long a file must be away to count as deleted.
    pub quiet: Duration,
    /// Whether pods that name no seccomp profile have the runtime's (`seccompDefault`).
    pub seccomp_default: bool,
}

impl SourceOptions {
    /// With the kubelet's times, and over HTTP.
    #[must_use]
    pub fn new(node: String, parse: Parse, events: Arc<dyn EventRecorder>, wall_clock: WallClock) -> Self {
        Self {
            node,
            parse,
            fetch: http::over_http(),
            events,
            wall_clock,
            file_check: Duration::from_secs(20),
            http_check: Duration::from_secs(20),
            quiet: Duration::from_millis(200),
            seccomp_default: false,
        }
    }
}

/// All sources of a node.
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

    /// What all sources have.
    #[must_use]
    pub fn desired(&self) -> watch::Receiver<DesiredPods> {
        self.merge.desired()
    }

    /// ConfigMaps and Secrets.
    #[must_use]
    pub fn documents(&self) -> DocumentStore {
        self.merge.documents()
    }

    /// Reads all sources, and goes on doing so until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let loops = self.sources.iter().enumerate().map(|(index, source)| {
            let tell = move |view: View| self.merge.tell(index, view);
            async move {
                match source {
                    Source::Path(path) => directory::run(path, manifest::Expected::All, &self.options, &tell).await,
                    Source::Documents(path) => {
                        directory::run(path, manifest::Expected::Documents, &self.options, &tell).await;
                    }
                    Source::Url(url) => http::run(url, &self.options, &tell).await,
                    Source::Once(once) => tell(once.view()),
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

/// What one source has now.
#[derive(Clone, Debug, Default)]
struct View {
    /// Whether it knows what it has.
    ready: bool,
    /// What is wrong with the source as a whole, and what people call it.
    problem: Option<(String, Problem)>,
    /// Its manifests, in their order.
    manifests: Vec<Manifest>,
}

/// One file or answer.
#[derive(Clone, Debug)]
struct Manifest {
    origin: String,
    /// When it was first there.
    since: tokio::time::Instant,
    /// What was last good in it.
    content: Option<Arc<manifest::Content>>,
    /// Whether it says something that is not known: it cannot be read, is not valid, or is being written.
    held: bool,
    /// What is wrong with it, once that has lasted.
    problem: Option<Problem>,
}

/// What is wrong, and with which pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    reason: String,
    /// Namespace, name and uid, where they are known.
    pod: Option<(String, String, String)>,
    /// Whether the next look may find it mended though nothing changed.
    passing: bool,
    /// Whether somebody told it already.
    told: bool,
}

impl Problem {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), pod: None, passing: false, told: false }
    }

    fn passing(reason: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(reason) }
    }
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
