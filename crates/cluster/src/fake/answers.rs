//! Answers of the [`super::FakeServer`] as HTTP: objects, failures, streams of events.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use super::{Body, State};

type Query = [(String, String)];

/// Names and values of a query, decoded.
pub(super) fn query(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let hex = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
            match byte {
                b'%' => {
                    let (high, low) = (hex(rest.next()).unwrap_or(0), hex(rest.next()).unwrap_or(0));
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
                }
                other => bytes.push(other),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Returns the value of a name in a query.
pub(super) fn value<'q>(query: &'q Query, name: &str) -> Option<&'q str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let full = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(full);
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

pub(super) fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    json(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &status(code, reason, message))
}

/// Returns the kinds of a group. Callers only check that the group exists.
pub(super) fn no_resources(group: &str) -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []})
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "code": code, "reason": reason, "message": message})
}

/// Returns a stream of events, from a version on or with all objects first.
pub(super) fn watch(state: &Arc<State>, path: &str, query: &Query) -> Response<Body> {
    let initial = value(query, "sendInitialEvents") == Some("true");
    if initial && !state.streams {
        return failure(422, "Invalid", "sendInitialEvents is forbidden for watch");
    }
    let fields = value(query, "fieldSelector").unwrap_or_default().to_owned();
    let (mut first, mut version) =
        (Vec::new(), value(query, "resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0));
    {
        let mut store = state.store.lock();
        if initial {
            first
                .extend(store.list(path, &fields).into_iter().map(|object| json!({"type": "ADDED", "object": object})));
            let deleted = state.delete_in_list.lock().take().and_then(|path| store.remove(&path));
            first.extend(deleted.map(|object| json!({"type": "DELETED", "object": object})));
            version = store.version();
            let metadata =
                json!({"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}});
            let end = json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}});
            first.extend((!*state.endless_lists.lock()).then_some(end));
        }
    }
    let closes = {
        let mut closes = state.closes.subscribe();
        closes.mark_unchanged();
        closes
    };
    let changed = state.changed.subscribe();
    let live = futures::stream::unfold(
        (Arc::clone(state), version, changed, closes, path.to_owned(), fields, false),
        |(state, mut version, mut changed, mut closes, path, fields, over)| async move {
            if over {
                return None;
            }
            loop {
                changed.mark_unchanged();
                if *state.quiet.borrow() {
                    tokio::select! {
                        biased;
                        _ = closes.changed() => return None,
                        result = changed.changed() => if result.is_err() { return None },
                    }
                    continue;
                }
                let events = state.store.lock().events(&path, &fields, version);
                let Some((newest, events)) = events else {
                    let expired =
                        json!({"type": "ERROR", "object": status(410, "Expired", "too old resource version")});
                    return Some((vec![expired], (state, version, changed, closes, path, fields, true)));
                };
                version = newest;
                if !events.is_empty() {
                    return Some((events, (state, version, changed, closes, path, fields, false)));
                }
                tokio::select! {
                    biased;
                    _ = closes.changed() => return None,
                    result = changed.changed() => if result.is_err() { return None },
                }
            }
        },
    );
    let events = futures::stream::iter([first]).chain(live).flat_map(futures::stream::iter);
    let frames = events.map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}
