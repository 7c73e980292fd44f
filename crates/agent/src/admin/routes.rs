//! The routers of both sockets, and the routes of health, metrics, back-off and the API itself. No rule of its own. Called by axum; made
//! by [`crate::admin`] and [`super::store_server`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, RawQuery, Request};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router, extract};
use cri_api::Kind;
use maud::{DOCTYPE, html};

use super::access::{Caller, require_change};
use super::backoff::{self, BackoffList, NO_BACKOFF_HERE, ResetCount};
use super::exposition::Form;
use super::state::{Admin, Answer, Readiness, Refusal, SharedState, bad_request, json};
use super::table::{Access, Content, Parameter, Route, Sockets, schema};
use super::{
    archive_routes, collecting, ensure_routes, image_events, image_routes, image_set_routes, openapi, path_routes,
    pod_routes, pull_routes, store_routes,
};
use crate::api::wire::{API_VERSION, AgentVersion, VERSION_HEADER};
use crate::node::board::PodBoard;

/// How long the image service may take to answer the check of readiness.
const READY_TIME: Duration = Duration::from_secs(2);
/// The longest body of a request that is no archive.
const LONGEST_BODY: usize = 16 << 20;

const ROUTES: &[Route] = &[
    Route::get(
        "/version",
        "The versions of the agent and of its API, and what the caller may do",
        Content::Json(schema::<AgentVersion>),
        || get(version),
    ),
    Route::get("/openapi.json", "This document", Content::Json(schema::<serde_json::Value>), || get(document)),
];

const BACKOFF_ROUTES: &[Route] = &[
    Route::get("/backoff", "Images in back-off after failed pulls", Content::Json(schema::<BackoffList>), || get(list)),
    Route::change(
        "/backoff/reset",
        "Resets back-off; exactly one parameter",
        Content::Json(schema::<ResetCount>),
        || post(reset),
    )
    .with(&[
        Parameter::query("all", "`true`: all entries"),
        Parameter::query("image", "of this image"),
        Parameter::query("pod", "of this pod, NAMESPACE/NAME"),
        Parameter::query("uid", "of the pod with this uid"),
        Parameter::query("registry", "of images of this registry"),
    ]),
];

/// Every route of the API, with the sockets that answer it.
pub(super) fn table() -> impl Iterator<Item = (Sockets, &'static Route)> {
    let files = [
        (Sockets::Both, ROUTES),
        (Sockets::Both, image_routes::ROUTES),
        (Sockets::Both, image_events::ROUTES),
        (Sockets::Both, archive_routes::ROUTES),
        (Sockets::Both, store_routes::ROUTES),
        (Sockets::Store, path_routes::ROUTES),
        (Sockets::Admin, BACKOFF_ROUTES),
        (Sockets::Admin, ensure_routes::ROUTES),
        (Sockets::Admin, pull_routes::ROUTES),
        (Sockets::Admin, pod_routes::ROUTES),
        (Sockets::Admin, image_set_routes::ROUTES),
        (Sockets::Admin, collecting::ROUTES),
    ];
    files.into_iter().flat_map(|(sockets, routes)| routes.iter().map(move |route| (sockets, route)))
}

/// The routes of the admin socket. Each one answers only the clients that its declaration permits.
pub(super) fn of_agent(state: Arc<Admin>) -> Router {
    let api = api(&state, Sockets::Store).route("/configz", get(configuration));
    checked(api.with_state(Arc::clone(&state)).merge(public(state)))
}

/// The routes of the socket of a store, for clients of this user, who may use all of them.
pub(super) fn of_store(state: Arc<Admin>) -> Router {
    let caller = Caller { user: Some(rustix::process::geteuid().as_raw()), may_change: true };
    let api = api(&state, Sockets::Admin);
    checked(api.with_state(state)).layer(Extension(ConnectInfo(caller)))
}

/// The routes but those of the other socket alone.
fn api(state: &Arc<Admin>, other: Sockets) -> Router<Arc<Admin>> {
    let mut api = Router::new();
    for (sockets, route) in table().filter(|(sockets, _)| *sockets != other) {
        let mut handler = (route.handler)();
        if route.access == Access::Privileged {
            handler = handler.route_layer(from_fn(require_change));
        }
        if sockets != Sockets::Admin {
            handler = handler.route_layer(from_fn_with_state(Arc::clone(state), until_end));
        }
        api = api.route(&format!("/v1{}", route.path), handler);
    }
    api
}

/// Adds the rules that apply to every request.
fn checked(routes: Router) -> Router {
    let routes = routes.fallback(unknown).method_not_allowed_fallback(other_method);
    routes.layer(extract::DefaultBodyLimit::max(LONGEST_BODY)).layer(from_fn(well_formed)).layer(from_fn(versioned))
}

/// The paths for every client that reaches the address of metrics, with a description of each.
const PUBLIC: [(&str, &str); 4] = [
    ("/metrics", "metrics in the text format of Prometheus"),
    ("/healthz", "health of the process"),
    ("/livez", "health of the process"),
    ("/readyz", "readiness, or the reason why a part does not answer"),
];

/// The routes for every client that reaches the address of metrics, and a page that lists them.
pub(super) fn public_alone(state: Arc<Admin>) -> Router {
    public(state).route("/", get(index)).layer(from_fn(well_formed))
}

fn public(state: Arc<Admin>) -> Router {
    let alive = || async { "ok\n" };
    let routes = Router::new().route("/healthz", get(alive)).route("/livez", get(alive));
    routes.route("/readyz", get(ready)).route("/metrics", get(metrics)).with_state(state)
}

/// Lists the paths of the address of metrics.
async fn index() -> impl IntoResponse {
    const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "imagelet metrics" }
            }
            body {
                main {
                    h1 { "imagelet " (env!("CARGO_PKG_VERSION")) }
                    ul { @for (path, about) in PUBLIC { li { a href=(path) { (path) } ": " (about) } } }
                }
            }
        }
    };
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, page.into_string())
}

/// Cancels a request when the process is about to end. An error that follows from the end is no answer: the client has to ask the next
/// owner of the store.
async fn until_end(extract::State(state): SharedState, request: Request, next: Next) -> Response {
    match state.stop.run_until_cancelled(next.run(request)).await {
        Some(response) if response.status().is_success() || !state.stop.is_cancelled() => response,
        _ => Refusal::ends().into_response(),
    }
}

/// Refuses a path that has other spellings, before a route is found for it.
async fn well_formed(request: Request, next: Next) -> Response {
    if cluster::kubelet_api::path_segments(request.uri().path()).is_none() {
        return unknown(request.uri().clone()).await.into_response();
    }
    next.run(request).await
}

/// Refuses a request that needs a newer API, and names the version in each answer.
async fn versioned(request: Request, next: Next) -> Response {
    let wanted = request.headers().get(&VERSION_HEADER).map(|value| value.to_str().unwrap_or_default().to_owned());
    let mut response = match wanted {
        Some(wanted) if !speaks(&wanted) => {
            let line = format!("this agent speaks version {API_VERSION} of the API, and version {wanted:?} is needed");
            Refusal::new(Kind::Unimplemented, line).into_response()
        }
        _ => next.run(request).await,
    };
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(API_VERSION));
    response
}

/// Returns true if this agent has everything that this version has.
fn speaks(wanted: &str) -> bool {
    let parse = |text: &str| {
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    matches!((parse(wanted), parse(API_VERSION)), (Some((major, minor)), Some((own, newest))) if major == own && minor <= newest)
}

async fn unknown(uri: Uri) -> Refusal {
    let path = uri.path();
    let version = path.strip_prefix("/v").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    if is_version && version != "1" {
        let line = format!("this agent speaks version {API_VERSION} of the API, and {path} is of version {version}");
        return Refusal::new(Kind::Unimplemented, line);
    }
    let line = format!("there is no {path}: GET /v1/openapi.json says what there is");
    if is_version {
        // A client distinguishes a missing route from a missing image.
        return Refusal::new(Kind::Unimplemented, line).with_status(StatusCode::NOT_FOUND);
    }
    Refusal::new(Kind::NotFound, line)
}

async fn other_method(uri: Uri) -> Refusal {
    let line = format!("{} has other methods: GET /v1/openapi.json says which", uri.path());
    Refusal::new(Kind::InvalidArgument, line).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

/// A refusal of health and metrics, in plain text for probes and scrapers.
#[derive(Debug)]
pub(super) struct PlainRefusal(pub(super) StatusCode, String);

impl IntoResponse for PlainRefusal {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

pub(super) async fn ready(extract::State(state): SharedState) -> Result<Response, PlainRefusal> {
    let unready = |why: String| Err(PlainRefusal(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}")));
    if state.stop.is_cancelled() {
        return unready("about to end".to_owned());
    }
    let service = match &state.readiness {
        Readiness::Service(service) => service,
        Readiness::Waiting(why) => return unready(why.clone()),
        Readiness::Running => return Ok("ok\n".into_response()),
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

async fn metrics(extract::State(state): SharedState, headers: HeaderMap) -> Result<Response, PlainRefusal> {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let form = Form::accepted(&accepts.collect::<Vec<_>>().join(","));
    match form.write(&state.registry, state.own_prefix) {
        Ok(text) => Ok(([(CONTENT_TYPE, form.content_type()), (CACHE_CONTROL, "no-store")], text).into_response()),
        Err(_) => Err(PlainRefusal(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written".to_owned())),
    }
}

/// The configuration under a name, as components of Kubernetes answer.
async fn configuration(extract::State(state): SharedState) -> Answer {
    let Some(configuration) = &state.configuration else {
        return Err(Refusal::new(Kind::NotFound, "this process has no configuration to show"));
    };
    json(&serde_json::json!({"imageletconfig": configuration()}))
}

async fn version(extract::State(state): SharedState, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer {
    json(&AgentVersion {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version: API_VERSION.to_owned(),
        pid: std::process::id(),
        instance: base::process_instance().to_owned(),
        has_store: state.engine.is_some(),
        may_change: caller.may_change,
    })
}

async fn document() -> Answer {
    json(&openapi::document(table()))
}

async fn list(extract::State(state): SharedState) -> Answer {
    json(&match &state.manager {
        Some(manager) => BackoffList { entries: manager.backoff().into_iter().map(Into::into).collect(), note: None },
        None => BackoffList { entries: Vec::new(), note: Some(NO_BACKOFF_HERE.to_owned()) },
    })
}

async fn reset(extract::State(state): SharedState, RawQuery(query): RawQuery) -> Answer {
    let selector = backoff::selector(query.as_deref().unwrap_or_default()).map_err(bad_request)?;
    let Some(manager) = &state.manager else {
        return json(&ResetCount { reset: 0, note: Some(NO_BACKOFF_HERE.to_owned()) });
    };
    let entries = manager.reset_backoff(&selector);
    tracing::info!(entries, selector = backoff::query(&selector), "back-off reset on request");
    json(&ResetCount { reset: entries, note: None })
}

#[cfg(test)]
mod tests {
    use super::speaks;

    #[test]
    fn a_request_may_need_this_version_or_an_older_one() {
        for (wanted, spoken) in
            [("1.0", true), ("1", true), ("1.1", false), ("2.0", false), ("0.9", false), ("", false), ("1.x", false)]
        {
            assert_eq!(speaks(wanted), spoken, "{wanted:?}");
        }
    }
}
