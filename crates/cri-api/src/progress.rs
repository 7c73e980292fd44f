//! Progress of a pull, reported as it happens. For display and metrics only: no decision depends on it.

use std::fmt;
use std::sync::Arc;

use oci::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a layer within a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LayerState {
    /// Queued.
    Waiting,
    /// Fetching and unpacking.
    Fetching,
    /// Fetched; unpacking and verification continue.
    Unpacking,
    /// Another pull fetches the layer.
    WaitingForOther,
    /// Present before the pull.
    Present,
    /// Unpacked and verified.
    Done,
}

impl LayerState {
    /// Returns the state in words, for users.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Fetching => "fetching",
            Self::Unpacking => "unpacking",
            Self::WaitingForOther => "in another pull",
            Self::Present => "present",
            Self::Done => "done",
        }
    }
}

/// Bytes that a pull received from one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceBytes {
    /// `host[:port]`.
    pub host: String,
    /// True for a mirror, false for the registry itself.
    pub mirror: bool,
    /// Received bytes.
    pub bytes: u64,
}

/// A progress event of a pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullEvent {
    /// The reference is being resolved. No other event precedes `resolved`.
    Resolving,
    /// The reference is resolved, and the manifest with its layers is known: digests and compressed sizes, lowest layer first.
    Resolved {
        /// Digest of the resolved manifest or index.
        #[schemars(with = "String")]
        digest: Digest,
        /// Layers by digest and compressed size in bytes.
        #[schemars(with = "Vec<(String, u64)>")]
        layers: Vec<(Digest, u64)>,
    },
    /// The state of a layer has changed.
    Layer {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// New state.
        state: LayerState,
    },
    /// Compressed bytes of a layer were received.
    Bytes {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// Bytes received so far. Restarts at 0 if the layer is fetched again.
        done: u64,
    },
    /// Uncompressed bytes of a layer were unpacked. Continues after the last `bytes` event, because a few compressed bytes can
    /// contain many files.
    Unpacked {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// Uncompressed bytes so far. Restarts at 0 if the layer is fetched again.
        done: u64,
    },
    /// Bytes of manifests, config and layers that this pull itself received so far, by host. Layers that another pull fetched are
    /// not in it. Reported when all layers were fetched, and when the pull fails.
    Sources {
        /// The registry and its mirrors, as far as they sent something.
        sources: Vec<SourceBytes>,
    },
    /// All layers are unpacked; the image is being committed.
    Committing,
}

/// Receives progress. The default one discards it. Called often and from any thread: it must be quick.
#[derive(Clone, Default)]
pub struct ProgressSink(Option<Arc<dyn Fn(PullEvent) + Send + Sync>>);

impl ProgressSink {
    /// Creates a sink that calls `f`.
    #[must_use]
    pub fn new(f: impl Fn(PullEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    /// Reports one event.
    pub fn report(&self, event: PullEvent) {
        if let Some(f) = &self.0 {
            f(event);
        }
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ProgressSink(set)" } else { "ProgressSink(none)" })
    }
}
