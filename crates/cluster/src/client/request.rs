//! Requests to the API server for objects whose kind does not matter here: JSON in, JSON out. Sends nothing. Called by everything of
//! this crate that knows its objects by their path.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use serde_json::Value;

/// Creates a GET request.
pub(crate) fn get(uri: &str) -> Request<Vec<u8>> {
    let mut request = Request::new(Vec::new());
    if let Ok(uri) = uri.parse() {
        *request.uri_mut() = uri;
    }
    request
}

/// Creates a POST request.
pub(crate) fn post(uri: &str, object: &Value) -> Request<Vec<u8>> {
    with_body(Method::POST, uri, "application/json", object)
}

/// Creates a DELETE request with these options.
pub(crate) fn delete(uri: &str, options: &Value) -> Request<Vec<u8>> {
    with_body(Method::DELETE, uri, "application/json", options)
}

/// Creates a PATCH request with a strategic merge patch.
pub(crate) fn strategic_merge(uri: &str, patch: &Value) -> Request<Vec<u8>> {
    with_body(Method::PATCH, uri, "application/strategic-merge-patch+json", patch)
}

fn with_body(method: Method, uri: &str, kind: &'static str, body: &Value) -> Request<Vec<u8>> {
    let mut request = get(uri);
    *request.method_mut() = method;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    *request.body_mut() = body.to_string().into_bytes();
    request
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_what_its_method_needs() {
        let request = strategic_merge("/api/v1/nodes/n/status?fieldManager=imagelet", &json!({"a": 1}));
        assert_eq!((request.method(), request.uri().path()), (&Method::PATCH, "/api/v1/nodes/n/status"));
        assert_eq!(request.headers()[CONTENT_TYPE], "application/strategic-merge-patch+json");
        assert_eq!(request.body(), br#"{"a":1}"#);
        assert!(get("/api/v1/pods").headers().is_empty());
    }
}
