//! [`Admin`]: the parts of a process that its admin endpoint answers from, and the two forms of an answer. Made by the commands
//! that keep running; used by every file of routes.

use std::sync::Arc;

use axum::extract;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use cri_api::ImageService;
use engine_api::ImageEngine;
use image_manager::{ImageManager, PullBoard};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::pods::PodBoard;
use crate::collection::Collection;

/// The parts that an admin endpoint answers from. Those that are `None` are not in this process.
pub struct Admin {
    pub(super) registry: Registry,
    pub(super) readiness: Readiness,
    /// The manager that keeps back-off.
    pub manager: Option<Arc<ImageManager>>,
    /// Garbage collection.
    pub collection: Option<Arc<Collection>>,
    /// The pods that this process runs.
    pub pods: Option<PodBoard>,
    /// The pulls of this process.
    pub pulls: Option<PullBoard>,
    /// The store of this process.
    pub engine: Option<Arc<dyn ImageEngine>>,
    /// A kubelet on this node has metrics of its own: those that have its names get ours.
    pub beside_a_kubelet: bool,
    /// Cancelled when the process is about to end.
    pub(super) stop: CancellationToken,
}

/// The way to know whether a process is ready.
pub(super) enum Readiness {
    /// Ready while this service answers. Each request asks it, so it is not the counted one.
    Service(Arc<dyn ImageService>),
    /// Not ready, for this reason.
    Waiting(String),
}

/// The refusal of what only a store of ours can do, where something else keeps the images.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} works on the embedded store only, and the images are behind {}",
    if endpoint.is_empty() { "another service" } else { endpoint }
)]
pub struct NoEngine {
    /// Name of the call.
    pub what: String,
    /// The endpoint that keeps the images.
    pub endpoint: String,
}

/// The state as axum hands it to a route.
pub(super) type SharedState = extract::State<Arc<Admin>>;

/// The answer of a route.
pub(super) type Answer = Result<Response, Refusal>;

/// A refusal: its status and one line.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

/// The refusal of a query that cannot be read.
pub(super) fn bad_request(line: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, line.into())
}

/// The value as JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    let text = serde_json::to_string(value)
        .map_err(|_| Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written".to_owned()))?;
    Ok(([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text + "\n").into_response())
}
