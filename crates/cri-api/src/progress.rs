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
    /// Waits for its turn.
    Waiting,
    /// Bytes are coming and are unpacked as they come.
    Fetching,
    /// All bytes came; the rest is being unpacked and checked.
    Unpacking,
    /// Another pull is bringing it.
    WaitingForOther,
    /// Was present before the pull.
    Present,
    /// Unpacked and verified.
    Done,
}

/// Something that happened in a pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullEvent {
    /// The registry is asked what the reference stands for. Until [`PullEvent::Resolved`] nothing more is told.
    Resolving,
    /// The reference is resolved: the manifest is known, and so are its layers (digest and compressed size, lowest
    /// first).
    Resolved {
        /// Digest that the reference stands for (of the index, if it is one).
        #[schemars(with = "String")]
        digest: Digest,
        /// Layers by digest and compressed size in bytes.
        #[schemars(with = "Vec<(String, u64)>")]
        layers: Vec<(Digest, u64)>,
    },
    /// A layer changed its state.
    Layer {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// The new state.
        state: LayerState,
    },
    /// More compressed bytes of a layer came.
    Bytes {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// Bytes so far. Starts again when a layer has to be fetched anew.
        done: u64,
    },
    /// More of a layer is unpacked. It goes on after the last [`PullEvent::Bytes`]: a few compressed bytes can stand for
    /// a great many files.
    Unpacked {
        /// Digest of the compressed blob.
        #[schemars(with = "String")]
        digest: Digest,
        /// Bytes of the layer's tar stream so far. Starts again when a layer has to be fetched anew.
        done: u64,
    },
    /// Everything is unpacked; the image is being made durable and visible.
    Committing,
}

/// Receives progress. The default one discards it. Called often and from any thread: it must be quick.
#[derive(Clone, Default)]
pub struct ProgressSink(Option<Arc<dyn Fn(PullEvent) + Send + Sync>>);

impl ProgressSink {
    /// A sink that calls `f`.
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
