//! The routes of the page, and the headers that every answer has. A request is judged by [`super::access`] first. No rule of its own. Called by axum.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Certified};
use super::query::ImageQuery;
use super::report::Reporter;
use super::state::{PageState, refusal};
use super::{assets, live, view};

/// Everything comes from here: no script, style or image of somebody else, nothing inline, no frame around it, no form to elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// All routes.
pub(super) fn all(reporter: Arc<Reporter>, access: Arc<Access>, stop: CancellationToken) -> Router {
    let state = Arc::new(PageState::new(reporter, stop));
    let routes = Router::new()
        .route("/", get(page))
        .route("/live", get(live::stream))
        .route("/assets/{version}/{name}", get(asset))
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "there is no such page") })
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "GET is answered, and nothing else")
        })
        .with_state(state);
    routes.layer(middleware::from_fn_with_state(access, guard))
}

/// Judges a request, and gives every answer its headers.
async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let certified = request.extensions().get::<Certified>().is_some_and(|certified| certified.0);
    let headers = request.headers();
    let judged = access.judge(only(headers, &header::HOST), only(headers, &header::AUTHORIZATION), certified);
    let mut response = match judged {
        Ok(()) => next.run(request).await,
        Err((status, line)) => refusal(status, line),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        let asks = HeaderValue::from_static("Basic realm=\"imagelet\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The one value of a header; `None` where there are several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

async fn page(State(state): State<Arc<PageState>>, RawQuery(query): RawQuery) -> Response {
    let query = match ImageQuery::parse(query.as_deref().unwrap_or_default()) {
        Ok(query) => query,
        Err(line) => return refusal(StatusCode::BAD_REQUEST, &line),
    };
    let report = state.reporter.report().await;
    let html = view::page(&report, &query).into_string();
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

async fn asset(Path((version, name)): Path<(String, String)>) -> Response {
    assets::find(&version, &name).unwrap_or_else(|| refusal(StatusCode::NOT_FOUND, "there is no such file"))
}
