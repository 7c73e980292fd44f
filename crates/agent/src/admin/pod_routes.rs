//! The routes of pods: `GET /v1/pods`, a PodList; `GET /v1/pods/{namespace}/{name}`, one pod with what its last sync wanted;
//! `GET /v1/events`, an EventList that a client may wait for; `GET /v1/node`. Decides nothing. Called by axum; the commands `pods`,
//! `describe` and `events` ask.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, RawQuery};
use axum::http::StatusCode;
use axum::routing::get;
use cri_api::Kind;

use super::access::Caller;
use super::state::{Admin, Answer, Readiness, Refusal, SharedState, bad_request, json};
use super::table::{Content, Parameter, Route, schema};
use crate::node::board::{EventList, NodeInfo, PodBoard, PodDetail, PodList, without_secrets};

/// How long a client may wait for an event in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long a question about pods waits for the first list of them.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// The refusal of a process that runs no pods.
pub(super) const NOBODY: &str = "this process runs no pods; `imagelet run` does";

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/pods",
        "The pods as a Kubernetes PodList, with refused manifests in `refused`. For callers that may not change state, without fields \
         that may hold secrets: environments, arguments, annotations, probes",
        Content::Json(schema::<PodList>),
        || get(list),
    ),
    Route::private(
        "/pods/{namespace}/{name}",
        "A pod, with the actions of its last sync and their reasons",
        Content::Json(schema::<PodDetail>),
        || get(one),
    )
    .with(&[Parameter::path("namespace", "the namespace"), Parameter::path("name", "the name of the pod")]),
    Route::private(
        "/events",
        "Events as a Kubernetes EventList; `metadata.resourceVersion` is the number for the next request",
        Content::Json(schema::<EventList>),
        || get(events),
    )
    .with(&[
        Parameter::query("since", "events after that number").integer(),
        Parameter::query("wait", "seconds to wait for an event, at most 60").integer(),
    ]),
    Route::get("/node", "The node and its agent", Content::Json(schema::<NodeInfo>), || get(node)),
];

fn board(state: &Admin) -> Result<&PodBoard, Refusal> {
    let none = || match &state.readiness {
        Readiness::Waiting(why) => Refusal::new(Kind::Unavailable, why.clone()),
        Readiness::Service(_) | Readiness::Running => Refusal::new(Kind::NotFound, NOBODY),
    };
    state.pods.as_ref().ok_or_else(none)
}

/// Returns the board once the process knows its pods: right after the start it has not listed the running ones yet.
async fn known(state: &Admin) -> Result<&PodBoard, Refusal> {
    let board = board(state)?;
    let known = tokio::select! {
        known = board.known(FIRST_LIST) => known,
        () = state.stop.cancelled() => Err("the process is about to end".to_owned()),
    };
    known.map(|()| board).map_err(|why| Refusal::new(Kind::Unavailable, why).with_status(StatusCode::TOO_EARLY))
}

async fn list(state: SharedState, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer {
    let list = known(&state).await?.list();
    json(&if caller.may_change { list } else { without_secrets(&list) })
}

async fn one(state: SharedState, Path((namespace, name)): Path<(String, String)>) -> Answer {
    let pod = known(&state).await?.one(&namespace, &name);
    json(&pod.ok_or_else(|| Refusal::new(Kind::NotFound, format!("pod {namespace}/{name} not found")))?)
}

async fn node(state: SharedState) -> Answer {
    json(&board(&state)?.node)
}

/// `since=NUMBER`: the events after that one. `wait=SECONDS`: returns when there is one, or after this time.
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
    // Event numbers start again with the process: a client that has seen later ones asked an earlier process.
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
