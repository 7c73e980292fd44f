//! The routes of garbage collection: they pass requests to the [`Collection`], and return its results. No rules of their own.
//! Called by axum.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::RawQuery;
use axum::routing::{get, post};
use cri_api::{Error, Kind};
use image_manager::gc::NodeStatus;
use image_manager::{ReclaimSpace as _, ReclaimedSpace};
use serde::Serialize;

use super::state::{Admin, Answer, Refusal, SharedState, bad_request, json};
use super::table::{Content, Parameter, Route, schema};
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
    Route::get("/gc", "The target of image garbage collection", Content::Json(schema::<gc::CollectedTarget>), || {
        get(target)
    }),
    Route::get(
        "/gc/plan",
        "The plan of a collection, with the reason for each image; at most one of untilFree, olderThanSeconds and allUnused",
        Content::Json(schema::<gc::CollectPlan>),
        || get(plan),
    )
    .with(GOALS),
    Route::change(
        "/gc/collect",
        "Collects images, with the parameters of the plan",
        Content::Json(schema::<gc::CollectReport>),
        || post(collect),
    )
    .with(GOALS),
    Route::get(
        "/gc/containers",
        "Leftovers of containers, with those that would be removed",
        Content::Json(schema::<gc::CollectedContainers>),
        || get(containers),
    ),
    Route::change(
        "/gc/containers",
        "Removes leftovers of containers",
        Content::Json(schema::<gc::CollectedContainers>),
        || post(collect_containers),
    ),
    Route::change(
        "/gc/protect",
        "Has an image removed after all others for one hour",
        Content::Json(schema::<Done>),
        || post(protect),
    )
    .with(&[Parameter::query("image", "the image id").required()]),
    Route::change(
        "/gc/room",
        "Frees space for a pull",
        Content::Json(schema::<ReclaimedSpace>),
        || post(room),
    )
    .with(&[Parameter::query("needed", "bytes that must be available").integer()]),
    Route::get(
        "/status",
        "The status of the node's images and their file systems",
        Content::Json(schema::<NodeStatus>),
        || get(status),
    ),
    Route::get(
        "/names",
        "The names of all images by id",
        Content::Json(schema::<BTreeMap<String, Vec<String>>>),
        || get(names),
    ),
    Route::get("/pins", "The pins, with the images that each protects", Content::Json(schema::<Pins>), || {
        get(pins)
    }),
    Route::change("/pins", "Adds pins", Content::Json(schema::<Pins>), || post(pin)).with(PATTERNS),
    Route::change("/pins/remove", "Removes pins", Content::Json(schema::<Pins>), || post(unpin))
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
    json(&collection.reclaim_space(needed).await)
}

async fn status(state: SharedState) -> Answer {
    answer(collection(&state)?.node_status().await)
}

async fn names(state: SharedState) -> Answer {
    answer(collection(&state)?.names().await)
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

fn answer(answer: Result<impl Serialize, CollectionError>) -> Answer {
    json(&answer.map_err(|error| refusal(error.kind(), &error))?)
}

fn refusal(kind: Kind, error: &(dyn std::error::Error + 'static)) -> Refusal {
    Error::from_source(kind, error).into()
}
