//! [`Admin`]: the parts of a process that its admin endpoint answers from, and the forms of an answer. Made by the commands
//! that keep running; used by every file of routes.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base::lock::Mutex;
use cri_api::engine::ImageEngine;
use cri_api::{Error, ImageService, Kind};
use image_manager::{ImageManager, PullBoard};
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::image_sets::ImageSets;
use super::stream_quota::{StreamQuota, TooManyStreams};
use crate::api::wire::ApiError;
use crate::collection::Collection;
use crate::node::board::PodBoard;

/// Reads the configuration in force as JSON, without secrets.
pub type Configuration = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

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
    /// The image service for requests, if this process pulls and removes for other processes.
    pub images: Mutex<Option<Arc<dyn ImageService>>>,
    /// The image sets that this node follows.
    pub image_sets: Option<ImageSets>,
    /// The configuration in force, without secrets.
    pub configuration: Option<Configuration>,
    /// Secrets of pods that requests bring along.
    pub secrets_directory: Option<PathBuf>,
    /// The store of this process.
    pub engine: Option<Arc<dyn ImageEngine>>,
    /// Metrics that a kubelet also exports have names that begin with `imagelet_`, so that no sum counts both processes.
    pub own_prefix: bool,
    /// Logs the changes that clients request. Commands that use the store's socket report their work themselves.
    pub(super) logs_changes: bool,
    /// Streams of events that are open.
    pub(super) streams: StreamQuota,
    /// Cancelled when the process is about to end.
    pub(super) stop: CancellationToken,
}

/// The way to know whether a process is ready.
pub(super) enum Readiness {
    /// Ready while this service answers. Each request asks it, so it is not the counted one.
    Service(Arc<dyn ImageService>),
    /// Not ready, for this reason.
    Waiting(String),
    /// Ready while the process runs.
    Running,
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

impl Admin {
    /// The image service for requests.
    pub(super) fn service(&self) -> Result<Arc<dyn ImageService>, Refusal> {
        let none = || Refusal::new(Kind::NotFound, "this process does nothing with images for others");
        self.images.lock().clone().ok_or_else(none)
    }

    /// The store, for a call of this name.
    pub(super) fn engine(&self, what: &str) -> Result<Arc<dyn ImageEngine>, Refusal> {
        let endpoint = || self.collection.as_ref().map(|collection| collection.images().to_owned()).unwrap_or_default();
        let none = || NoEngine { what: what.to_owned(), endpoint: endpoint() };
        self.engine.clone().ok_or_else(|| Refusal::new(Kind::Unimplemented, none().to_string()))
    }

    /// Logs a change that a client requests.
    pub(super) fn log_change(&self, change: &str, image: &str) {
        if self.logs_changes {
            tracing::info!(image, "{change}");
        }
    }
}

/// The state as axum hands it to a route.
pub(super) type SharedState = extract::State<Arc<Admin>>;

/// The answer of a route of the API.
pub(super) type Answer = Result<Response, Refusal>;

/// A refusal of a route.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    pub(super) error: ApiError,
}

impl Refusal {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// The refusal of a process that is about to end.
    pub(super) fn ends() -> Self {
        Self::new(Kind::Unavailable, "the process ends")
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

/// The status of an error.
fn status_of(kind: Kind) -> StatusCode {
    match kind {
        Kind::InvalidArgument => StatusCode::BAD_REQUEST,
        Kind::Unauthenticated | Kind::PermissionDenied => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::FailedPrecondition | Kind::Cancelled => StatusCode::CONFLICT,
        Kind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Kind::DataLoss | Kind::Internal | Kind::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { status: status_of(error.kind()), error: ApiError::from(&error) }
    }
}

impl From<TooManyStreams> for Refusal {
    fn from(error: TooManyStreams) -> Self {
        Self::new(Kind::ResourceExhausted, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = serde_json::to_string(&self.error).unwrap_or_default();
        (self.status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text + "\n").into_response()
    }
}

/// The refusal of a request that cannot be read.
pub(super) fn bad_request(line: impl Into<String>) -> Refusal {
    Refusal::new(Kind::InvalidArgument, line)
}

/// The value of a request's body.
pub(super) fn read_body<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| bad_request(format!("the body cannot be read: {error}")))
}

/// The value as JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    let text =
        serde_json::to_string(value).map_err(|_| Refusal::new(Kind::Internal, "the answer cannot be written"))?;
    Ok(([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text + "\n").into_response())
}
