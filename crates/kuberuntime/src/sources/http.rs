//! A URL that returns pods: requested periodically. An unchanged response is ignored, and a failure changes nothing. The requests
//! themselves are made by the function in [`SourceOptions`].

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::manifest::{ExpectedObjects, ManifestContent, ManifestProblem, ManifestReader};
use super::options::{FetchRequest, shown};
use super::options::{MAX_MANIFEST, SourceOptions};
use super::view::{SourceManifest, SourceView};
use crate::identity::Origin;

/// Timeout of a request, as in the kubelet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of consecutive failures that are logged, as in the kubelet.
const LOGGED_FAILURES: u32 = 3;

/// A URL that returns pods.
#[derive(Clone)]
pub struct UrlSource {
    /// `http` or `https`.
    pub url: String,
    /// Headers of each request. A name may occur several times.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlSource").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

/// Fetches the pods periodically, for ever, and reports them.
pub(super) async fn run(source: &UrlSource, options: &SourceOptions, publish: &(dyn Fn(SourceView) + Sync)) {
    let reader = ManifestReader { options: options.clone(), expected: ExpectedObjects::All, may_be_empty: false };
    let (origin, since) = (shown(&source.url), Instant::now());
    let (mut content, mut failures): (Option<Arc<ManifestContent>>, u32) = (None, 0);
    let mut ticks = tokio::time::interval(options.http_check);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let problem = match ask(source, options, &reader, &origin, content.clone()).await {
            Ok(read) => {
                if failures > 0 {
                    tracing::info!(origin, "read pods again");
                }
                (content, failures) = (Some(read), 0);
                None
            }
            Err(problem) => {
                failures = failures.saturating_add(1);
                let error = &problem.reason;
                match failures.cmp(&LOGGED_FAILURES) {
                    Ordering::Less => tracing::warn!(origin, error, "cannot read pods"),
                    Ordering::Equal => tracing::warn!(origin, error, "cannot read pods, not logging further failures"),
                    Ordering::Greater => tracing::debug!(origin, error, "cannot read pods"),
                }
                // A pod that is not valid has its event; every other problem was logged above.
                Some(ManifestProblem { reported: problem.pod.is_none(), ..problem })
            }
        };
        let held = content.is_none();
        let manifest = SourceManifest { origin: origin.clone(), since, content: content.clone(), held, problem };
        publish(SourceView {
            // Before the first response, every running pod may be one of this URL.
            ready: !held,
            unread: held.then(|| origin.clone()),
            manifests: vec![manifest],
            ..SourceView::default()
        });
    }
}

async fn ask(
    source: &UrlSource,
    options: &SourceOptions,
    reader: &ManifestReader,
    origin: &str,
    previous: Option<Arc<ManifestContent>>,
) -> Result<Arc<ManifestContent>, ManifestProblem> {
    let UrlSource { url, headers } = source.clone();
    let request = FetchRequest { url: url.clone(), headers, limit: MAX_MANIFEST, timeout: PATIENCE };
    let body = match tokio::time::timeout(PATIENCE, (options.fetch)(request)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(ManifestProblem::passing(error)),
        Err(_) => return Err(ManifestProblem::passing(format!("no answer within {} seconds", PATIENCE.as_secs()))),
    };
    if body.len() > MAX_MANIFEST {
        return Err(ManifestProblem::passing(format!("the answer has more than {} MiB", MAX_MANIFEST >> 20)));
    }
    let (reader, origin) = (reader.clone(), origin.to_owned());
    let read = move || reader.read(Origin::Url(&url), &origin, &body, previous.as_ref());
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err(ManifestProblem::passing("the reader panicked")))
}
