//! `GET /stack?image=TEXT`: the layers of an image or a layer, held for as long as the answer is being read: one line of JSON, and
//! then nothing until who asked goes away. So another process of the same user can read an image's files while this one has
//! the root. Called by axum; `imagelet ls`, `cat` and `cp` ask.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use cri_api::Kind;
use futures::StreamExt as _;

use super::routes::{Of, State, refused};

/// What is asked for an image.
pub(crate) fn target(image: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("image", image);
    format!("/stack?{}", query.finish())
}

/// Adds it.
pub(super) fn add(router: Router<Arc<State>>) -> Router<Arc<State>> {
    router.route("/stack", get(stack))
}

async fn stack(state: Of, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let Some(image) = pairs.find(|(key, _)| key == "image").map(|(_, image)| image.into_owned()) else {
        return refused(StatusCode::BAD_REQUEST, "image: it must be said which");
    };
    let Some(engine) = &state.engine else {
        return refused(StatusCode::NOT_FOUND, "the images of this process are not in a store of its own");
    };
    let held = match engine.stack(&image).await {
        Ok(held) => held,
        Err(error) => {
            let status = match error.kind() {
                Kind::NotFound => StatusCode::NOT_FOUND,
                Kind::InvalidArgument => StatusCode::BAD_REQUEST,
                Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            return refused(status, error.message());
        }
    };
    let Ok(line) = serde_json::to_string(held.stack()) else {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written");
    };
    let stop = state.stop.clone();
    let first = futures::stream::once(async move { Ok::<_, Infallible>(Bytes::from(line + "\n")) });
    let rest = futures::stream::once(async move {
        stop.cancelled().await;
        drop(held);
        Ok(Bytes::new())
    });
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(first.chain(rest))).into_response()
}
