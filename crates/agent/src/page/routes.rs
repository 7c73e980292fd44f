//! The routes of the page, and the headers that every answer has. A request is parsed once into a [`PageRoute`], judged by [`super::access`], and answered by
//! that route. All routes need the same right: that of a reader. Called by the port.

use std::sync::Arc;

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use cluster::kubelet_api::{Client, path_segments};
use hyper::Request;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::query::ImageQuery;
use super::report::Reporter;
use super::state::{PageState, refusal};
use super::{assets, live, view};

/// Permits content of this origin only: no foreign script, style or image, nothing inline, no frame around the page, and no form
/// that sends elsewhere.
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

/// A page of this node.
#[derive(Debug, PartialEq, Eq)]
enum PageRoute {
    Page,
    Live,
    Asset { version: String, name: String },
    Unknown,
}

impl PageRoute {
    /// Parses a path. Returns `None` where it is not well formed.
    fn parse(path: &str) -> Option<Self> {
        Some(match &path_segments(path)?[..] {
            [] => Self::Page,
            ["live"] => Self::Live,
            ["assets", version, name] => Self::Asset { version: (*version).to_owned(), name: (*name).to_owned() },
            _ => Self::Unknown,
        })
    }
}

/// Everything that answers requests.
pub(super) struct Routes {
    state: Arc<PageState>,
    access: Access,
}

impl Routes {
    pub(super) fn new(reporter: Arc<Reporter>, access: Access, stop: CancellationToken) -> Self {
        Self { state: Arc::new(PageState::new(reporter, stop)), access }
    }

    /// Answers a request, and gives the answer the headers of all answers.
    pub(super) async fn answer<B>(&self, client: &Client, request: Request<B>) -> Response {
        // The body of a request is not read.
        let request = request.map(drop);
        let mut response = match self.enter(client, &request) {
            Ok(route) => self.dispatch(route, &request).await,
            Err(refusal) => refusal,
        };
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, value);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        if response.status() == StatusCode::UNAUTHORIZED {
            let asks = HeaderValue::from_static("Basic realm=\"imagelet\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
        }
        response
    }

    /// Returns the route of a request whose client may read the page.
    #[expect(clippy::result_large_err, reason = "a refusal is an answer")]
    fn enter(&self, client: &Client, request: &Request<()>) -> Result<PageRoute, Response> {
        let Some(route) = PageRoute::parse(request.uri().path()) else { return Err(no_page()) };
        let authorization = only(request.headers(), &header::AUTHORIZATION);
        let judged = self.access.judge(authorization, client.certificate().is_some());
        judged.map_err(|(status, line)| refusal(status, line))?;
        if !self.access.is_open() && !client.authenticate() {
            return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "too many readers are connected"));
        }
        Ok(route)
    }

    async fn dispatch(&self, route: PageRoute, request: &Request<()>) -> Response {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let query = request.uri().query().unwrap_or_default();
        match route {
            PageRoute::Unknown => no_page(),
            _ if !reads => refusal(StatusCode::METHOD_NOT_ALLOWED, "GET is answered, and nothing else"),
            PageRoute::Page => self.page(query).await,
            PageRoute::Live => live::stream(Arc::clone(&self.state), query),
            PageRoute::Asset { version, name } => {
                assets::find(&version, &name).unwrap_or_else(|| refusal(StatusCode::NOT_FOUND, "there is no such file"))
            }
        }
    }

    async fn page(&self, query: &str) -> Response {
        let query = match ImageQuery::parse(query) {
            Ok(query) => query,
            Err(line) => return refusal(StatusCode::BAD_REQUEST, &line),
        };
        let report = self.state.reporter.report().await;
        let html = view::page(&report, &query).into_string();
        ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
    }
}

fn no_page() -> Response {
    refusal(StatusCode::NOT_FOUND, "there is no such page")
}

/// Returns the value of a header, or `None` if there are several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
