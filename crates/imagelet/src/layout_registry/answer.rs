//! Answers of the registry: a response, or a refusal in the form of the specification. Called by the routes.

use axum::body::Body;
use axum::http::{HeaderName, Response, StatusCode};

use super::layout::LayoutError;

pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// An error in the specification's form.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }
}

impl From<LayoutError> for Refusal {
    fn from(error: LayoutError) -> Self {
        tracing::error!(error = crate::exit::chain(&error), "the layout cannot be read");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the layout cannot be read")
    }
}

pub(super) type Answer = Result<Response<Body>, Refusal>;

pub(super) fn respond(status: StatusCode, headers: &[(HeaderName, String)], body: Body) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body).map_err(|error| {
        tracing::error!(%error, "a header of the answer");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the answer cannot be written")
    })
}
