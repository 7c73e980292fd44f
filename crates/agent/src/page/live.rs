//! The live page: `GET /live` sends the parts of the page that changed, as server-sent events, twice a second while pulls run and
//! every two seconds otherwise. A reader that does not read is waited for, and nothing is kept for it meanwhile. Called by
//! [`super::routes`]; read by `page.js`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, Stream};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::assets;
use super::query::ImageQuery;
use super::state::{PageState, refusal};
use super::view;

/// Time between two updates while a pull runs.
const BUSY: Duration = Duration::from_millis(500);
/// Time between two updates otherwise.
const QUIET: Duration = Duration::from_secs(2);

/// A reader of the live page.
struct Reader {
    state: Arc<PageState>,
    query: ImageQuery,
    /// Hashes of the parts that the reader has, by id.
    sent: HashMap<&'static str, u64>,
    waits: bool,
    _seat: OwnedSemaphorePermit,
}

/// Returns the response to a reader of the live page.
pub(super) fn stream(state: Arc<PageState>, query: &str) -> Response {
    let query = match ImageQuery::parse(query) {
        Ok(query) => query,
        Err(line) => return refusal(StatusCode::BAD_REQUEST, &line),
    };
    let Some(seat) = state.seat() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many readers of the live page");
    };
    let reader = Reader { state, query, sent: HashMap::new(), waits: false, _seat: seat };
    Sse::new(events(reader)).into_response()
}

/// Returns the events of a reader: one message for each update, also an empty one, which shows both sides that the connection lives.
fn events(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        if std::mem::replace(&mut reader.waits, true) {
            reader.wait().await?;
        }
        let changed = reader.changed().await;
        let message = json!({"version": format!("{:016x}", assets::VERSION), "parts": changed}).to_string();
        Some((Ok(Event::default().retry(QUIET).data(message)), reader))
    })
}

impl Reader {
    /// Waits for the next update; `None` when the process ends.
    async fn wait(&self) -> Option<()> {
        let reporter = &self.state.reporter;
        let pause = if reporter.is_busy() { BUSY } else { QUIET };
        let mut changes = reporter.changes();
        let update = async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Pulls that start and end quickly are shown in one update.
                _ = changes.changed() => tokio::time::sleep(BUSY / 5).await,
            }
        };
        self.state.stop.run_until_cancelled(update).await
    }

    /// Returns the parts that differ from those of the reader.
    async fn changed(&mut self) -> Vec<serde_json::Value> {
        let report = self.state.reporter.report().await;
        let mut changed = Vec::new();
        for (id, part) in view::parts(&report, &self.query) {
            let html = part.into_string();
            let mut hasher = DefaultHasher::new();
            html.hash(&mut hasher);
            let hash = hasher.finish();
            if self.sent.insert(id, hash) != Some(hash) {
                changed.push(json!({"id": id, "html": html}));
            }
        }
        changed
    }
}
