//! The routes of health, metrics and back-off, and the routers that all routes make up. No rule of its own. Called by axum;
//! made by [`crate::admin`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::RawQuery;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use axum::{Router, extract};

use super::backoff::{self, BackoffList, NOBODY_DECIDES, ResetCount};
use super::exposition::Form;
use super::pods::PodBoard;
use super::state::{Admin, Answer, Readiness, Refusal, SharedState, bad_request, json};
use super::{collecting, pod_routes};

/// How long the image service may take to say that it is there.
const READY_TIME: Duration = Duration::from_secs(2);

/// For the owner.
pub(super) fn all(state: Arc<Admin>) -> Router {
    let own = Router::new().route("/backoff", get(list)).route("/backoff/reset", post(reset));
    pod_routes::add(collecting::add(own)).with_state(Arc::clone(&state)).merge(public(state))
}

/// For everybody who reaches the address.
pub(super) fn public(state: Arc<Admin>) -> Router {
    let alive = || async { "ok\n" };
    let routes = Router::new().route("/healthz", get(alive)).route("/livez", get(alive));
    routes.route("/readyz", get(ready)).route("/metrics", get(metrics)).with_state(state)
}

pub(super) async fn ready(extract::State(state): SharedState) -> Answer {
    let unready = |why: String| Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}")));
    if state.stop.is_cancelled() {
        return unready("about to end".to_owned());
    }
    let service = match &state.readiness {
        Readiness::Service(service) => service,
        Readiness::Waiting(why) => return unready(why.clone()),
    };
    if let Some(Err(problem)) = state.pods.as_ref().map(PodBoard::healthy) {
        return unready(format!("pods: {problem}"));
    }
    match tokio::time::timeout(READY_TIME, service.image_fs_info()).await {
        Ok(Ok(_)) => Ok("ok\n".into_response()),
        Ok(Err(error)) => unready(format!("the image service: {}", error.message())),
        Err(_) => unready("the image service does not answer".to_owned()),
    }
}

async fn metrics(extract::State(state): SharedState, headers: HeaderMap) -> Answer {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let form = Form::accepted(&accepts.collect::<Vec<_>>().join(","));
    match form.write(&state.registry, state.beside_a_kubelet) {
        Ok(text) => Ok(([(CONTENT_TYPE, form.content_type()), (CACHE_CONTROL, "no-store")], text).into_response()),
        Err(_) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written".to_owned())),
    }
}

async fn list(extract::State(state): SharedState) -> Answer {
    json(&match &state.manager {
        Some(manager) => BackoffList { entries: manager.backoff().into_iter().map(Into::into).collect(), note: None },
        None => BackoffList { entries: Vec::new(), note: Some(NOBODY_DECIDES.to_owned()) },
    })
}

async fn reset(extract::State(state): SharedState, RawQuery(query): RawQuery) -> Answer {
    let selector = backoff::selector(query.as_deref().unwrap_or_default()).map_err(bad_request)?;
    let Some(manager) = &state.manager else {
        return json(&ResetCount { reset: 0, note: Some(NOBODY_DECIDES.to_owned()) });
    };
    let entries = manager.reset_backoff(&selector);
    tracing::info!(entries, selector = backoff::query(&selector), "back-off reset on request");
    json(&ResetCount { reset: entries, note: None })
}
