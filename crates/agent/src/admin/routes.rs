//! The routes of health, metrics and back-off, and the routers that all routes make up. No rule of its own. Called by axum;
//! made by [`crate::admin`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::RawQuery;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, extract};

use super::backoff::{self, List, NOBODY_DECIDES, Reset};
use super::exposition::Form;
use super::pods::PodBoard;
use super::state::{AdminState, SharedState, json, refused};
use super::{collecting, engine, pod_routes};

/// How long the image service may take to say that it is there.
const READY_TIME: Duration = Duration::from_secs(2);

/// For the owner.
pub(super) fn all(state: Arc<AdminState>) -> Router {
    let own = Router::new().route("/backoff", get(list)).route("/backoff/reset", post(reset));
    engine::add(pod_routes::add(collecting::add(own))).with_state(Arc::clone(&state)).merge(public(state))
}

/// For everybody who reaches the address.
pub(super) fn public(state: Arc<AdminState>) -> Router {
    let alive = || async { "ok\n" };
    let routes = Router::new().route("/healthz", get(alive)).route("/livez", get(alive));
    routes.route("/readyz", get(ready)).route("/metrics", get(metrics)).with_state(state)
}

pub(super) async fn ready(extract::State(state): SharedState) -> Response {
    if state.stop.is_cancelled() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "not ready: about to end");
    }
    if let Some(why) = &state.waiting {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}"));
    }
    if let Some(Err(problem)) = state.pods.as_ref().map(PodBoard::healthy) {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: pods: {problem}"));
    }
    match tokio::time::timeout(READY_TIME, state.service.image_fs_info()).await {
        Ok(Ok(_)) => "ok\n".into_response(),
        Ok(Err(error)) => {
            let text = format!("not ready: the image service: {}", error.message());
            refused(StatusCode::SERVICE_UNAVAILABLE, &text)
        }
        Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "not ready: the image service does not answer"),
    }
}

async fn metrics(extract::State(state): SharedState, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let form = Form::accepted(&accepts.collect::<Vec<_>>().join(","));
    match form.write(&state.registry) {
        Ok(text) => ([(CONTENT_TYPE, form.content_type()), (CACHE_CONTROL, "no-store")], text).into_response(),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}

async fn list(extract::State(state): SharedState) -> Response {
    let list = match &state.manager {
        Some(manager) => List { entries: manager.backoff().into_iter().map(Into::into).collect(), note: None },
        None => List { entries: Vec::new(), note: Some(NOBODY_DECIDES.to_owned()) },
    };
    json(&list)
}

async fn reset(extract::State(state): SharedState, RawQuery(query): RawQuery) -> Response {
    let selector = match backoff::selector(query.as_deref().unwrap_or_default()) {
        Ok(selector) => selector,
        Err(message) => return refused(StatusCode::BAD_REQUEST, &message),
    };
    let done = match &state.manager {
        Some(manager) => Reset { reset: manager.reset_backoff(&selector), note: None },
        None => Reset { reset: 0, note: Some(NOBODY_DECIDES.to_owned()) },
    };
    if state.manager.is_some() {
        tracing::info!(entries = done.reset, "back-off forgotten on request: {}", backoff::query(&selector));
    }
    json(&done)
}
