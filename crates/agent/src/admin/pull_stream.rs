//! [`with_progress`]: a pull whose answer is a stream of events: its progress, and its end. A reader that is slower than the pull
//! may miss counts of bytes, but no change of a state. Called by the routes of images.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use cri_api::{ProgressSink, PullEvent};
use tokio::sync::mpsc;

use super::images::PulledImage;
use super::pull_routes::{event, keep_alive};
use super::stream_quota::StreamPlace;
use crate::api::wire::ApiError;

/// Events that wait for a slow reader.
const WAITING: usize = 1024;
/// Of these, how many places are kept for changes of a state.
const KEPT: usize = WAITING / 2;
/// A reader receives a keep-alive at least this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Pull = Pin<Box<dyn Future<Output = Result<PulledImage, ApiError>> + Send>>;

/// A pull and the events that were not read yet.
struct PullStream {
    events: mpsc::Receiver<PullEvent>,
    pull: Option<Pull>,
    /// The end, which follows the last event.
    end: Option<Bytes>,
    _place: StreamPlace,
}

/// Returns the answer of a pull. The pull runs as long as the answer is read.
pub(super) fn with_progress<F>(place: StreamPlace, pull: impl FnOnce(ProgressSink) -> F) -> Response
where
    F: Future<Output = Result<PulledImage, ApiError>> + Send + 'static,
{
    let (sender, events) = mpsc::channel(WAITING);
    let sink = ProgressSink::new(move |event| {
        let is_small = matches!(event, PullEvent::Bytes { .. } | PullEvent::Unpacked { .. });
        if !is_small || sender.capacity() > KEPT {
            // A reader that is this slow still receives the end.
            let _ = sender.try_send(event);
        }
    });
    let stream = PullStream { events, pull: Some(Box::pin(pull(sink))), end: None, _place: place };
    let stream = futures::stream::unfold(stream, async |mut stream| {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], Body::from_stream(stream)).into_response()
}

impl PullStream {
    async fn next(&mut self) -> Option<Bytes> {
        let Some(pull) = &mut self.pull else {
            return match self.events.try_recv() {
                Ok(progress) => Some(event("progress", None, &progress)),
                Err(_) => self.end.take(),
            };
        };
        tokio::select! {
            biased;
            Some(progress) = self.events.recv() => Some(event("progress", None, &progress)),
            ended = pull => {
                self.pull = None;
                self.end = Some(match &ended {
                    Ok(pulled) => event("pulled", None, pulled),
                    Err(error) => event("error", None, error),
                });
                match self.events.try_recv() {
                    Ok(progress) => Some(event("progress", None, &progress)),
                    Err(_) => self.end.take(),
                }
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(keep_alive()),
        }
    }
}
