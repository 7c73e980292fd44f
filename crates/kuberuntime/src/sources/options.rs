//! [`SourceOptions`]: what reading manifests needs, with the kubelet's times.

use std::sync::Arc;
use std::time::Duration;

use image_manager::{EventRecorder, WallClock};
use serde_json::Value;

use super::fetch::{Fetch, over_http};

/// The largest manifest that is read, as in the kubelet.
pub const MAX_MANIFEST: usize = 10 << 20;

/// Reads the documents of a text, YAML or JSON, those that are empty left out. The error is for people.
pub type Parse = Arc<dyn Fn(&[u8]) -> Result<Vec<Value>, String> + Send + Sync>;

/// Options for reading manifests.
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
    /// True if pods that name no seccomp profile get the runtime's (`seccompDefault`).
    pub seccomp_default: bool,
}

impl SourceOptions {
    /// With the kubelet's times, and over HTTP.
    #[must_use]
    pub fn new(node: String, parse: Parse, events: Arc<dyn EventRecorder>, wall_clock: WallClock) -> Self {
        Self {
            node,
            parse,
            fetch: over_http(),
            events,
            wall_clock,
            file_check: Duration::from_secs(20),
            http_check: Duration::from_secs(20),
            quiet: Duration::from_millis(200),
            seccomp_default: false,
        }
    }
}
