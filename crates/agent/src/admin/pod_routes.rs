//! The routes of pods: `GET /pods`, a PodList; `GET /pods/{namespace}/{name}`, one pod with what its last sync wanted;
//! `GET /events`, an EventList that a client may wait for; `GET /node`. Decides nothing. Called by axum; the commands `pods`,
//! `describe` and `events` ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::routing::get;

use super::pods::PodBoard;
use super::state::{Admin, Answer, Readiness, Refusal, SharedState, bad_request, json};

/// How long a client may wait for an event in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long a question about pods waits for the first list of them.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// The refusal of a process that runs no pods.
pub(super) const NOBODY: &str = "this process runs no pods; `imagelet run` does";

/// Adds the routes.
pub(super) fn add(router: Router<Arc<Admin>>) -> Router<Arc<Admin>> {
    router
        .route("/pods", get(list))
        .route("/pods/{namespace}/{name}", get(one))
        .route("/events", get(events))
        .route("/node", get(node))
}

fn board(state: &Admin) -> Result<&PodBoard, Refusal> {
    let none = || match &state.readiness {
        Readiness::Waiting(why) => Refusal(StatusCode::SERVICE_UNAVAILABLE, why.clone()),
        Readiness::Service(_) => Refusal(StatusCode::NOT_FOUND, NOBODY.to_owned()),
    };
    state.pods.as_ref().ok_or_else(none)
}

/// The board of a process that knows its pods: right after its start it has yet to hear which ones run.
async fn known(state: &Admin) -> Result<&PodBoard, Refusal> {
    let board = board(state)?;
    let known = tokio::select! {
        known = board.known(FIRST_LIST) => known,
        () = state.stop.cancelled() => Err("the process is about to end".to_owned()),
    };
    known.map(|()| board).map_err(|why| Refusal(StatusCode::TOO_EARLY, why))
}

async fn list(state: SharedState) -> Answer {
    json(&known(&state).await?.list())
}

async fn one(state: SharedState, Path((namespace, name)): Path<(String, String)>) -> Answer {
    let pod = known(&state).await?.one(&namespace, &name);
    json(&pod.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("pod {namespace}/{name} not found")))?)
}

async fn node(state: SharedState) -> Answer {
    json(&board(&state)?.node)
}

/// `since=NUMBER`: those after that one. `wait=SECONDS`: comes back when there is one, or when so long has passed.
async fn events(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let board = board(&state)?;
    let query = query.unwrap_or_default();
    let given: HashMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let number = |name: &str| {
        let number = given.get(name).map(|text| text.parse::<u64>()).transpose();
        number.map_err(|_| bad_request(format!("{name}: a whole number was expected")))
    };
    if let Some(unknown) = given.keys().find(|name| !["since", "wait"].contains(&name.as_str())) {
        return Err(bad_request(format!("{unknown:?} is not known: since, wait")));
    }
    let (since, wait) = (number("since")?.unwrap_or_default(), number("wait")?);
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
    json(&board.events_since(since))
}
