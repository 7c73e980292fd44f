//! The answers of the port: their type, and how a refusal and a value become one.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use serde_json::Value;

use crate::kubelet_api::access::Refusal;

/// An answer.
pub(crate) type Answer = Response<BoxBody<Bytes, std::io::Error>>;

/// Boxes a body of any kind.
pub(crate) fn boxed(
    body: impl Body<Data = Bytes, Error = std::io::Error> + Send + Sync + 'static,
) -> BoxBody<Bytes, std::io::Error> {
    body.boxed()
}

/// Returns a response with a text of this type.
pub(crate) fn text(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let body = Full::new(text.into()).map_err(|never| match never {});
    let mut response = Response::new(boxed(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns a response with a value as JSON.
pub(crate) fn json(value: &Value) -> Answer {
    text(StatusCode::OK, "application/json", value.to_string())
}

impl Refusal {
    /// Returns the response of a refusal.
    pub(crate) fn answer(self) -> Answer {
        text(self.0, "text/plain; charset=utf-8", self.1)
    }
}
