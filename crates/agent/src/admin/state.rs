//! [`AdminState`]: the parts of a process that its admin endpoint answers from, and the two forms of an answer. Made by
//! [`crate::admin`]; used by every file of routes.

use std::sync::Arc;

use axum::extract;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use cri_api::ImageService;
use engine_api::ImageEngine;
use image_manager::ImageManager;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::pods::PodBoard;
use crate::collection::Collection;

/// The parts that the routes answer from.
pub(super) struct AdminState {
    pub(super) registry: Registry,
    pub(super) service: Arc<dyn ImageService>,
    /// Where back-off is kept, if it is kept here.
    pub(super) manager: Option<Arc<ImageManager>>,
    /// Garbage collection, if it is done here.
    pub(super) collection: Option<Arc<Collection>>,
    /// Pods, if they are run here.
    pub(super) pods: Option<PodBoard>,
    /// The store of this process, if it has one.
    pub(super) engine: Option<Arc<dyn ImageEngine>>,
    /// The thing that is waited for while the process is not ready.
    pub(super) waiting: Option<String>,
    /// Cancelled when the process is about to end.
    pub(super) stop: CancellationToken,
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
pub(super) type SharedState = extract::State<Arc<AdminState>>;

/// The value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text + "\n").into_response(),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written"),
    }
}

/// A refusal: its status and one line.
pub(super) fn refused(status: StatusCode, line: &str) -> Response {
    (status, format!("{line}\n")).into_response()
}
