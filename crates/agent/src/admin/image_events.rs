//! `GET /v1/images/events`: sends the list of images at once, and again whenever it changes, as server-sent events. While a
//! client reads, the images are listed after each pull and every half second, because they also change by other ways: removals,
//! imports, collections, clients of a runtime. Only the current list is kept for a slow reader. Called by axum; `imagelet
//! images --watch` reads it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::routing::get;
use cri_api::{Image, ImageService};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::images::ImageList;
use super::pull_routes::{KEEP_ALIVE, event, event_stream, keep_alive};
use super::pulls::StreamEnd;
use super::state::{Answer, Readiness, SharedState};
use super::stream_quota::StreamPlace;
use super::table::{Content, Route, SchemaOf, schema};

/// Time between two lists.
const INTERVAL: Duration = Duration::from_millis(500);

const EVENTS: &[(&str, SchemaOf)] = &[("images", schema::<ImageList>), ("end", schema::<StreamEnd>)];

/// The routes.
pub(super) const ROUTES: &[Route] = &[Route::get(
    "/images/events",
    "Streams the list of images, first immediately and then on changes. A final event `end` has the reason why the stream ends",
    Content::Events(EVENTS),
    || get(events),
)];

async fn events(state: SharedState, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer {
    let for_others = state.service()?;
    // Its own lists are not among the calls that the agent counts.
    let service = match &state.readiness {
        Readiness::Service(service) => Arc::clone(service),
        Readiness::Waiting(_) | Readiness::Running => for_others,
    };
    let service: Arc<dyn ImageService> = match &state.collection {
        Some(collection) => Arc::new(collection.served(service, false)),
        None => service,
    };
    let (_place, stop) = (state.streams.place(caller.user, caller.may_change)?, state.stop.clone());
    let changes = state.pulls.as_ref().map(image_manager::PullBoard::changes);
    let reader = Reader { service, changes, sent: None, listed: None, at: Instant::now(), stop, over: false, _place };
    Ok(event_stream(futures::stream::unfold(reader, async |mut reader| Some((reader.next().await?, reader)))))
}

/// The list that a reader of the stream has.
struct Reader {
    service: Arc<dyn ImageService>,
    changes: Option<watch::Receiver<u64>>,
    sent: Option<Vec<Image>>,
    /// When the images were listed last; `None` before the first event.
    listed: Option<Instant>,
    /// When something was sent last.
    at: Instant,
    stop: CancellationToken,
    over: bool,
    _place: StreamPlace,
}

impl Reader {
    /// The next piece of the stream. Called when the reader has room for it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        loop {
            if let Some(listed) = self.listed
                && self.stop.clone().run_until_cancelled(self.wait(listed)).await.is_none()
            {
                self.over = true;
                return Some(event("end", None, &StreamEnd { reason: "the agent ends".to_owned() }));
            }
            let images = self.service.list_images(None).await;
            self.listed = Some(Instant::now());
            match images {
                Ok(images) if self.sent.as_ref() != Some(&images) => {
                    self.at = Instant::now();
                    let list = ImageList { images };
                    let event = event("images", None, &list);
                    self.sent = Some(list.images);
                    return Some(event);
                }
                Ok(_) => {}
                // A runtime that restarts answers again.
                Err(error) => tracing::debug!(error = error.message(), "the images cannot be listed for a reader"),
            }
            if self.at.elapsed() >= KEEP_ALIVE {
                self.at = Instant::now();
                return Some(keep_alive());
            }
        }
    }

    /// Waits until it is time for the next list: soon after a pull, or later.
    async fn wait(&mut self, listed: Instant) {
        let pull = async {
            let heard = match &mut self.changes {
                Some(changes) => changes.changed().await.is_ok(),
                None => false,
            };
            if !heard {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = pull => tokio::time::sleep_until(listed + INTERVAL / 5).await,
            () = tokio::time::sleep_until(listed + INTERVAL) => {}
        }
    }
}
