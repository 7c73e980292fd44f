//! [`SourceOptions`]: the options of reading manifests, with the kubelet's times; and [`Fetch`], the function that requests a URL:
//! that of [`probe`], or one of a test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use image_manager::{EventRecorder, WallClock};
use serde_json::Value;

/// The largest manifest that is read, as in the kubelet.
pub const MAX_MANIFEST: usize = 10 << 20;

/// Parses the documents of a YAML or JSON text, without empty ones. The error is a message.
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
    /// Recorder of events about invalid pods.
    pub events: Arc<dyn EventRecorder>,
    /// The time of day, for the annotation with the time at which a pod was first seen, and for the age of files.
    pub wall_clock: WallClock,
    /// Interval at which directories are listed, in addition to events.
    pub file_check: Duration,
    /// Interval at which URLs are requested.
    pub http_check: Duration,
    /// Time after which an absent file counts as deleted.
    pub quiet: Duration,
    /// True if pods that name no seccomp profile get the runtime's (`seccompDefault`).
    pub seccomp_default: bool,
}

impl SourceOptions {
    /// Returns options with the kubelet's times and an HTTP client.
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

/// A request. Headers may be secret: `Debug` shows none.
#[derive(Clone)]
pub struct FetchRequest {
    /// Address with scheme `http` or `https`.
    pub url: String,
    /// Headers, of which a name may stand there several times.
    pub headers: Vec<(String, String)>,
    /// The most bytes that an answer may have.
    pub limit: usize,
    /// Timeout of the whole request.
    pub timeout: Duration,
}

impl FetchRequest {
    /// Creates a request for a manifest that a caller waits for.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let timeout = Duration::from_secs(30);
        Self { url: url.to_owned(), headers: Vec::new(), limit: MAX_MANIFEST, timeout }
    }

    /// Returns the URL without parts that may be secret: user, password and query.
    #[must_use]
    pub fn origin(&self) -> String {
        shown(&self.url)
    }
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

/// Fetches the body of a response with status 200. The error is a message, and shows no header.
pub type Fetch = Arc<dyn Fn(FetchRequest) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// Fetches over HTTP and HTTPS, with the server's certificate checked.
pub(super) fn over_http() -> Fetch {
    Arc::new(|request| {
        Box::pin(async move {
            let FetchRequest { url, headers, limit, timeout } = request;
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            crate::probe::fetch(&url, &headers, limit, timeout).await.map_err(|error| error.to_string())
        })
    })
}

/// Returns a URL without parts that may be secret: user, password and query.
pub(super) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}
