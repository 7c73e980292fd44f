//! The routes of pods: `GET /pods`, a PodList; `GET /pods/{namespace}/{name}`, one pod with what its last sync wanted;
//! `GET /events`, an EventList that a client may wait for; `GET /node`. Decides nothing. Called by axum; the commands `pods`,
//! `describe` and `events` ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use super::pods::PodBoard;
use super::state::{AdminState, SharedState, json as answer, refused};

/// How long a client may wait for an event in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The refusal of a process that runs no pods.
pub(super) const NOBODY: &str = "this process runs no pods; `imagelet run` does";

/// Adds the routes.
pub(super) fn add(router: Router<Arc<AdminState>>) -> Router<Arc<AdminState>> {
    router
        .route("/pods", get(list))
        .route("/pods/{namespace}/{name}", get(one))
        .route("/events", get(events))
        .route("/node", get(node))
}

fn board(state: &AdminState) -> Result<&PodBoard, Box<Response>> {
    let none = || match &state.waiting {
        Some(why) => refused(StatusCode::SERVICE_UNAVAILABLE, why),
        None => refused(StatusCode::NOT_FOUND, NOBODY),
    };
    state.pods.as_ref().ok_or_else(|| Box::new(none()))
}

async fn list(state: SharedState) -> Response {
    match board(&state) {
        Ok(board) => answer(&board.list()),
        Err(refusal) => *refusal,
    }
}

async fn one(state: SharedState, Path((namespace, name)): Path<(String, String)>) -> Response {
    let board = match board(&state) {
        Ok(board) => board,
        Err(refusal) => return *refusal,
    };
    match board.one(&namespace, &name) {
        Some(pod) => answer(&pod),
        None => refused(StatusCode::NOT_FOUND, &format!("pod {namespace}/{name} not found")),
    }
}

async fn node(state: SharedState) -> Response {
    match board(&state) {
        Ok(board) => answer(&board.node),
        Err(refusal) => *refusal,
    }
}

/// `since=NUMBER`: those after that one. `wait=SECONDS`: comes back when there is one, or when so long has passed.
async fn events(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let board = match board(&state) {
        Ok(board) => board,
        Err(refusal) => return *refusal,
    };
    let query = query.unwrap_or_default();
    let given: HashMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let number = |name: &str| match given.get(name).map(|text| text.parse::<u64>()) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(format!("{name}: a whole number was expected")),
    };
    if let Some(unknown) = given.keys().find(|name| !["since", "wait"].contains(&name.as_str())) {
        return refused(StatusCode::BAD_REQUEST, &format!("{unknown:?} is not known: since, wait"));
    }
    let (since, wait) = match (number("since"), number("wait")) {
        (Ok(since), Ok(wait)) => (since.unwrap_or_default(), wait),
        (Err(line), _) | (_, Err(line)) => return refused(StatusCode::BAD_REQUEST, &line),
    };
    // Numbers begin anew with the process: whoever knows later ones asked another one before.
    let since = if since > board.events.last() { 0 } else { since };
    if let Some(seconds) = wait {
        let patience = Duration::from_secs(seconds).min(LONGEST_WAIT);
        tokio::select! {
            () = board.events.after(since) => {}
            () = tokio::time::sleep(patience) => {}
            () = state.stop.cancelled() => {}
        }
    }
    answer(&board.events_since(since))
}
