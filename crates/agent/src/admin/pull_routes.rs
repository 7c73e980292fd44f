//! The routes of pulls: `GET /v1/pulls`, the pulls that run and the last ones that ended; `GET /v1/pulls/events`, the same as it changes, as
//! server-sent events. Each event has the whole state, so that a slow reader misses steps and nothing else: nothing is buffered for it.
//! Decides nothing. Called by axum.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, RawQuery};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use axum::routing::get;
use cri_api::Kind;
use futures::{Stream, StreamExt as _};
use image_manager::PullBoard;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::pulls::{Pulls, StreamEnd};
use super::state::{Admin, Answer, Refusal, SharedState, bad_request, json};
use super::stream_quota::StreamPlace;
use super::table::{Content, Parameter, Route, SchemaOf, schema};

/// How often a reader receives a changing state, if it does not ask for an interval.
const INTERVAL: Duration = Duration::from_millis(500);
/// The shortest and the longest interval that a reader may ask for, in milliseconds.
const INTERVALS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// A reader receives a keep-alive at least this often.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

const EVENTS: &[(&str, SchemaOf)] = &[("pulls", schema::<Pulls>), ("end", schema::<StreamEnd>)];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/pulls",
        "Running and queued pulls, and the last hundred finished ones",
        Content::Json(schema::<Pulls>),
        || get(pulls),
    ),
    Route::get(
        "/pulls/events",
        "Streams the state of all pulls, first immediately and then on changes. The id of an event is the number of the last finished \
         pull; a reader that reconnects with it as Last-Event-ID receives the pulls that finished meanwhile. A final event `end` has \
         the reason why the stream ends",
        Content::Events(EVENTS),
        || get(events),
    )
    .with(&[
        Parameter::query("interval", "milliseconds between two events, from 100 to 60000; 500 if it is not given").integer(),
        Parameter::query("since", "number of the last finished pull that the reader knows, as Last-Event-ID").integer(),
    ]),
];

fn board(state: &Admin) -> Result<&PullBoard, Refusal> {
    state.pulls.as_ref().ok_or_else(|| Refusal::new(Kind::NotFound, "this process pulls no images yet"))
}

async fn pulls(state: SharedState) -> Answer {
    let board = board(&state)?;
    json(&Pulls { pulls: board.pulls(), ended: board.ended(), missed: 0 })
}

async fn events(
    state: SharedState,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    let board = board(&state)?.clone();
    let (mut interval, mut since) = (INTERVAL, None);
    if let Some(id) = headers.get("last-event-id") {
        since = id.to_str().ok().and_then(|id| id.parse().ok());
    }
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let number = value.parse::<u64>().map_err(|_| bad_request(format!("{key}: {value:?} is no whole number")))?;
        match &*key {
            "interval" if INTERVALS.contains(&number) => interval = Duration::from_millis(number),
            "interval" => return Err(bad_request("interval: from 100 to 60000 milliseconds")),
            "since" => since = Some(number),
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: interval, since"))),
        }
    }
    let place = state.streams.place(caller.user, caller.may_change)?;
    let last = board.ended().last().map_or(0, |ended| ended.number);
    // Event numbers start again with the process: a reader that has seen later ones read from an earlier process.
    let since = since.map_or(last, |since: u64| if since > last { 0 } else { since });
    let reader = Reader::new(board, since, interval, state.stop.clone(), place);
    Ok(event_stream(futures::stream::unfold(reader, async |mut reader| Some((reader.next().await?, reader)))))
}

/// The answer whose body is a stream of events.
pub(super) fn event_stream(events: impl Stream<Item = Bytes> + Send + 'static) -> axum::response::Response {
    let stream = events.map(Ok::<_, Infallible>);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(stream)).into_response()
}

/// An event in the form of its stream.
pub(super) fn event(name: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n").into()
}

/// A line that says nothing but that the stream lives.
pub(super) fn keep_alive() -> Bytes {
    Bytes::from_static(b": keep-alive\n\n")
}

/// The state that has been sent to a reader of the stream.
struct Reader {
    board: PullBoard,
    changes: tokio::sync::watch::Receiver<u64>,
    /// Number of the last end that was sent.
    sent: u64,
    /// When something was sent last; `None` before the first event.
    at: Option<Instant>,
    interval: Duration,
    stop: CancellationToken,
    over: bool,
    _place: StreamPlace,
}

impl Reader {
    fn new(board: PullBoard, sent: u64, interval: Duration, stop: CancellationToken, place: StreamPlace) -> Self {
        let changes = board.changes();
        Self { board, changes, sent, at: None, interval, stop, over: false, _place: place }
    }

    /// The next piece of the stream. Called when the reader has room for it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let Some(at) = self.at else {
            return Some(self.state());
        };
        let runs = !self.board.pulls().is_empty();
        // While nothing runs, only a change is news.
        let (next, is_news) = if runs { (at + self.interval, true) } else { (at + KEEP_ALIVE, false) };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                self.over = true;
                Some(event("end", None, &StreamEnd { reason: "the agent ends".to_owned() }))
            }
            Ok(()) = self.changes.changed() => {
                // Not more often than the reader wishes, however many pulls begin and end.
                tokio::time::sleep_until(at + self.interval).await;
                Some(self.state())
            }
            () = tokio::time::sleep_until(next) => {
                if is_news {
                    return Some(self.state());
                }
                self.at = Some(Instant::now());
                Some(keep_alive())
            }
        }
    }

    /// The state as it is now.
    fn state(&mut self) -> Bytes {
        self.at = Some(Instant::now());
        self.changes.mark_unchanged();
        let ended = self.board.ended_after(self.sent);
        let missed = ended.first().map_or(0, |first| first.number.saturating_sub(self.sent + 1));
        self.sent = ended.last().map_or(self.sent, |last| last.number);
        event("pulls", Some(self.sent), &Pulls { pulls: self.board.pulls(), ended, missed })
    }
}

#[cfg(test)]
#[path = "pull_routes_tests.rs"]
mod tests;
