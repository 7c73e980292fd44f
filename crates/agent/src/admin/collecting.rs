//! The routes of garbage collection: what is asked goes to the [`Collection`], what it answers back. No rule of its own.
//! Called by axum.

use std::sync::Arc;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use cri_api::{Error, Kind};
use engine_api::{CheckRequest, CheckSink, ConvertRequest, ImageEngine, LayerShape};
use serde::Serialize;

use super::gc::{self, Pins, Request};
use super::state::{AdminState, NoEngine, SharedState, json, refused};
use crate::collection::{Collection, CollectionError};

/// Adds them.
pub(super) fn add(router: Router<Arc<AdminState>>) -> Router<Arc<AdminState>> {
    router
        .route("/gc", get(of))
        .route("/gc/plan", get(plan))
        .route("/gc/collect", post(collect))
        .route("/gc/containers", get(containers).post(collect_containers))
        .route("/gc/protect", post(protect))
        .route("/gc/room", post(room))
        .route("/status", get(status))
        .route("/names", get(names))
        .route("/check", post(check))
        .route("/convert", post(convert))
        .route("/pins", get(pins).post(pin))
        .route("/pins/remove", post(unpin))
}

async fn of(state: SharedState) -> Response {
    match collection(&state) {
        Ok(collection) => json(&gc::Of { images: collection.images().to_owned() }),
        Err(refusal) => *refusal,
    }
}

async fn plan(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let (collection, request) = match asked(&state, query) {
        Ok(asked) => asked,
        Err(refusal) => return *refusal,
    };
    answer(collection.plan(&request).await)
}

async fn collect(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let (collection, request) = match asked(&state, query) {
        Ok(asked) => asked,
        Err(refusal) => return *refusal,
    };
    tracing::info!(goal = request.query(), "images are collected on request");
    answer(collection.collect(&request).await)
}

async fn containers(state: SharedState) -> Response {
    match collection(&state) {
        Ok(collection) => answer(collection.containers(true).await),
        Err(refusal) => *refusal,
    }
}

async fn collect_containers(state: SharedState) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    tracing::info!("containers are collected on request");
    answer(collection.containers(false).await)
}

async fn protect(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    match (pairs.next(), pairs.next()) {
        (Some((key, id)), None) if key == "image" && !id.is_empty() => match collection.protect(&id).await {
            Ok(()) => "ok\n".into_response(),
            Err(error) => refusal(error.kind(), &error),
        },
        _ => refused(StatusCode::BAD_REQUEST, "image is needed, and nothing else"),
    }
}

async fn room(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    let needed = match query.as_deref().unwrap_or_default() {
        "" => None,
        query => match query.strip_prefix("needed=").and_then(|number| number.parse::<u64>().ok()) {
            Some(number) => Some(number),
            None => return refused(StatusCode::BAD_REQUEST, "needed is a number of bytes, and there is nothing else"),
        },
    };
    json(&gc::Made::from(collection.make_room(needed).await))
}

async fn status(state: SharedState) -> Response {
    match collection(&state) {
        Ok(collection) => answer(collection.status().await),
        Err(refusal) => *refusal,
    }
}

async fn names(state: SharedState) -> Response {
    match collection(&state) {
        Ok(collection) => answer(collection.names().await),
        Err(refusal) => *refusal,
    }
}

async fn check(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    let mut request = CheckRequest::default();
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let field = match &*key {
            "repair" => &mut request.repair,
            "deep" => &mut request.deep,
            _ => return refused(StatusCode::BAD_REQUEST, &format!("unknown parameter {key:?}; known: repair, deep")),
        };
        match value.parse() {
            Ok(value) => *field = value,
            Err(_) => return refused(StatusCode::BAD_REQUEST, &format!("{key}: must be true or false")),
        }
    }
    let engine = match engine(&state, collection, "check") {
        Ok(engine) => engine,
        Err(refusal) => return *refusal,
    };
    let report = engine.check_images(&request, &CheckSink::default()).await;
    answer_call("check the store", report)
}

async fn convert(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    let request = match conversion(&query.unwrap_or_default()) {
        Ok(request) => request,
        Err(message) => return refused(StatusCode::BAD_REQUEST, &message),
    };
    let engine = match engine(&state, collection, "convert") {
        Ok(engine) => engine,
        Err(refusal) => return *refusal,
    };
    let report = engine.convert_images(&request).await;
    answer_call("convert layers", report)
}

/// The conversion that a query asks for: `to` once, and any number of `image`.
fn conversion(query: &str) -> Result<ConvertRequest, String> {
    let (mut to, mut images) = (None, Vec::new());
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "to" => to = Some(LayerShape::from_name(&value).ok_or("to: must be erofs or dir")?),
            "image" => images.push(value.into_owned()),
            _ => return Err(format!("unknown parameter {key:?}; known: to, image")),
        }
    }
    Ok(ConvertRequest { to: to.ok_or("to is needed: erofs or dir")?, images })
}

async fn pins(state: SharedState) -> Response {
    match collection(&state) {
        Ok(collection) => answer(collection.pins().await.map(|pins| Pins { pins })),
        Err(refusal) => *refusal,
    }
}

async fn pin(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    match gc::patterns(query.as_deref().unwrap_or_default()) {
        Ok(patterns) => answer(collection.pin(&patterns).await.map(|pins| Pins { pins })),
        Err(message) => refused(StatusCode::BAD_REQUEST, &message),
    }
}

async fn unpin(state: SharedState, RawQuery(query): RawQuery) -> Response {
    let collection = match collection(&state) {
        Ok(collection) => collection,
        Err(refusal) => return *refusal,
    };
    match gc::patterns(query.as_deref().unwrap_or_default()) {
        Ok(patterns) => answer(collection.unpin(&patterns).await.map(|pins| Pins { pins })),
        Err(message) => refused(StatusCode::BAD_REQUEST, &message),
    }
}

fn asked(state: &AdminState, query: Option<String>) -> Result<(&Arc<Collection>, Request), Box<Response>> {
    let collection = collection(state)?;
    let request = Request::parse(query.as_deref().unwrap_or_default());
    let request = request.map_err(|message| Box::new(refused(StatusCode::BAD_REQUEST, &message)))?;
    Ok((collection, request))
}

fn collection(state: &AdminState) -> Result<&Arc<Collection>, Box<Response>> {
    let none = || Box::new(refused(StatusCode::NOT_FOUND, "this process collects no images"));
    state.collection.as_ref().ok_or_else(none)
}

fn engine<'a>(
    state: &'a AdminState,
    collection: &Collection,
    what: &str,
) -> Result<&'a Arc<dyn ImageEngine>, Box<Response>> {
    let none = || NoEngine { what: what.to_owned(), endpoint: collection.images().to_owned() };
    state.engine.as_ref().ok_or_else(|| Box::new(refusal(Kind::Unimplemented, &none())))
}

fn answer(answer: Result<impl Serialize, CollectionError>) -> Response {
    match answer {
        Ok(value) => json(&value),
        Err(error) => refusal(error.kind(), &error),
    }
}

/// The answer to a call of the store, which `what` names.
fn answer_call(what: &str, answer: Result<impl Serialize, Error>) -> Response {
    match answer {
        Ok(value) => json(&value),
        Err(error) => refusal_line(error.kind(), &format!("{what}: {}", error.message())),
    }
}

fn refusal(kind: Kind, error: &(dyn std::error::Error + 'static)) -> Response {
    refusal_line(kind, Error::from_source(kind, error).message())
}

fn refusal_line(kind: Kind, line: &str) -> Response {
    let status = match kind {
        Kind::Unavailable | Kind::DeadlineExceeded => StatusCode::BAD_GATEWAY,
        Kind::Unauthenticated | Kind::PermissionDenied => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, line)
}
