//! The routes of garbage collection: they pass requests to the [`Collection`], and return its results. No rules of their own.
//! Called by axum.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::RawQuery;
use axum::routing::{get, post};
use cri_api::engine::{CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ImageEngine, LayerShape};
use cri_api::{Error, Kind};
use image_manager::gc::NodeStatus;
use image_manager::{MakeRoom as _, Room};
use serde::Serialize;

use super::state::{Admin, Answer, NoEngine, Refusal, SharedState, bad_request, json};
use super::table::{Content, Parameter, Route};
use crate::api::gc::{self, CollectRequest, Pins};
use crate::api::wire::Done;
use crate::collection::{Collection, CollectionError, Collects as _};

const MIN_AGE: Parameter = Parameter::query("minAgeSeconds", "instead of the configured minimum age").integer();
const GOALS: &[Parameter] = &[
    Parameter::query("untilFree", "bytes that should be free on the image file system").integer(),
    Parameter::query("olderThanSeconds", "minimum time since the last use").integer(),
    Parameter::query("allUnused", "`true`: every unused image"),
    MIN_AGE,
];
const PATTERNS: &[Parameter] = &[Parameter::query("pattern", "a pattern of image names").repeated()];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::get("/gc", "The target of image garbage collection", Content::Json(|g| g.subschema_for::<gc::CollectedTarget>()), || {
        get(target)
    }),
    Route::get(
        "/gc/plan",
        "The plan of a collection, with the reason for each image; at most one of untilFree, olderThanSeconds and allUnused",
        Content::Json(|g| g.subschema_for::<gc::CollectPlan>()),
        || get(plan),
    )
    .with(GOALS),
    Route::change(
        "/gc/collect",
        "Collects images, with the parameters of the plan",
        Content::Json(|g| g.subschema_for::<gc::CollectReport>()),
        || post(collect),
    )
    .with(GOALS),
    Route::get(
        "/gc/containers",
        "Leftovers of containers, with those that would be removed",
        Content::Json(|g| g.subschema_for::<gc::CollectedContainers>()),
        || get(containers),
    ),
    Route::change(
        "/gc/containers",
        "Removes leftovers of containers",
        Content::Json(|g| g.subschema_for::<gc::CollectedContainers>()),
        || post(collect_containers),
    ),
    Route::change(
        "/gc/protect",
        "Has an image removed after all others for one hour",
        Content::Json(|g| g.subschema_for::<Done>()),
        || post(protect),
    )
    .with(&[Parameter::query("image", "the image id").required()]),
    Route::change(
        "/gc/room",
        "Frees space for a pull",
        Content::Json(|g| g.subschema_for::<Room>()),
        || post(room),
    )
    .with(&[Parameter::query("needed", "bytes that must be available").integer()]),
    Route::get(
        "/status",
        "The status of the node's images and their file systems",
        Content::Json(|g| g.subschema_for::<NodeStatus>()),
        || get(status),
    ),
    Route::get(
        "/names",
        "The names of all images by id",
        Content::Json(|g| g.subschema_for::<BTreeMap<String, Vec<String>>>()),
        || get(names),
    ),
    Route::change(
        "/check",
        "Checks the store",
        Content::Json(|g| g.subschema_for::<CheckReport>()),
        || post(check),
    )
    .with(&[
        Parameter::query("repair", "`true` or `false`: repairs what can be repaired"),
        Parameter::query("deep", "`true` or `false`: also compares every file with its layer"),
    ]),
    Route::change(
        "/convert",
        "Converts the layers of images; of all images without `image`",
        Content::Json(|g| g.subschema_for::<ConvertReport>()),
        || post(convert),
    )
    .with(&[
        Parameter::query("to", "`erofs` or `dir`").required(),
        Parameter::query("image", "a name or an id").repeated(),
    ]),
    Route::get("/pins", "The pins, with the images that each protects", Content::Json(|g| g.subschema_for::<Pins>()), || {
        get(pins)
    }),
    Route::change("/pins", "Adds pins", Content::Json(|g| g.subschema_for::<Pins>()), || post(pin)).with(PATTERNS),
    Route::change("/pins/remove", "Removes pins", Content::Json(|g| g.subschema_for::<Pins>()), || post(unpin))
        .with(PATTERNS),
];

async fn target(state: SharedState) -> Answer {
    json(&gc::CollectedTarget { images: collection(&state)?.images().to_owned() })
}

async fn plan(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (collection, request) = asked(&state, query)?;
    answer(collection.plan(&request).await)
}

async fn collect(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (collection, request) = asked(&state, query)?;
    tracing::info!(goal = request.query(), "images are collected on request");
    answer(collection.collect(&request).await)
}

async fn containers(state: SharedState) -> Answer {
    answer(collection(&state)?.containers(true).await)
}

async fn collect_containers(state: SharedState) -> Answer {
    let collection = collection(&state)?;
    tracing::info!("containers are collected on request");
    answer(collection.containers(false).await)
}

async fn protect(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    match (pairs.next(), pairs.next()) {
        (Some((key, id)), None) if key == "image" && !id.is_empty() => {
            collection.protect(&id).await.map_err(|error| refusal(error.kind(), &error))?;
            json(&Done::default())
        }
        _ => Err(bad_request("image is needed, and nothing else")),
    }
}

async fn room(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let needed = match query.as_deref().unwrap_or_default() {
        "" => None,
        query => match query.strip_prefix("needed=").and_then(|number| number.parse::<u64>().ok()) {
            Some(number) => Some(number),
            None => return Err(bad_request("needed is a number of bytes, and there is nothing else")),
        },
    };
    json(&collection.make_room(needed).await)
}

async fn status(state: SharedState) -> Answer {
    answer(collection(&state)?.node_status().await)
}

async fn names(state: SharedState) -> Answer {
    answer(collection(&state)?.names().await)
}

async fn check(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let mut request = CheckRequest::default();
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let field = match &*key {
            "repair" => &mut request.repair,
            "deep" => &mut request.deep,
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: repair, deep"))),
        };
        *field = value.parse().map_err(|_| bad_request(format!("{key}: must be true or false")))?;
    }
    let report = engine(&state, collection, "check")?.check_images(&request, &CheckSink::default()).await;
    answer_call("check the store", report)
}

async fn convert(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let request = conversion(&query.unwrap_or_default()).map_err(bad_request)?;
    let report = engine(&state, collection, "convert")?.convert_images(&request).await;
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

async fn pins(state: SharedState) -> Answer {
    answer(collection(&state)?.pins().await.map(|pins| Pins { pins }))
}

async fn pin(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let patterns = gc::patterns(query.as_deref().unwrap_or_default()).map_err(bad_request)?;
    answer(collection.pin(&patterns).await.map(|pins| Pins { pins }))
}

async fn unpin(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let collection = collection(&state)?;
    let patterns = gc::patterns(query.as_deref().unwrap_or_default()).map_err(bad_request)?;
    answer(collection.unpin(&patterns).await.map(|pins| Pins { pins }))
}

fn asked(state: &Admin, query: Option<String>) -> Result<(&Arc<Collection>, CollectRequest), Refusal> {
    let request = CollectRequest::parse(query.as_deref().unwrap_or_default());
    Ok((collection(state)?, request.map_err(bad_request)?))
}

fn collection(state: &Admin) -> Result<&Arc<Collection>, Refusal> {
    let none = || Refusal::new(Kind::NotFound, "this process collects no images");
    state.collection.as_ref().ok_or_else(none)
}

fn engine<'a>(state: &'a Admin, collection: &Collection, what: &str) -> Result<&'a Arc<dyn ImageEngine>, Refusal> {
    let none = || NoEngine { what: what.to_owned(), endpoint: collection.images().to_owned() };
    state.engine.as_ref().ok_or_else(|| refusal(Kind::Unimplemented, &none()))
}

fn answer(answer: Result<impl Serialize, CollectionError>) -> Answer {
    json(&answer.map_err(|error| refusal(error.kind(), &error))?)
}

/// The answer to a call of the store, which `what` names.
fn answer_call(what: &str, answer: Result<impl Serialize, Error>) -> Answer {
    json(&answer.map_err(|error| refusal_line(error.kind(), format!("{what}: {}", error.message())))?)
}

fn refusal(kind: Kind, error: &(dyn std::error::Error + 'static)) -> Refusal {
    refusal_line(kind, Error::from_source(kind, error).message().to_owned())
}

fn refusal_line(kind: Kind, line: String) -> Refusal {
    Refusal::new(kind, line)
}
