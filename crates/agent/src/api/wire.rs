//! The words that every request and answer of the API shares: its version, its errors. Plain data, the same on both sides. Called by the
//! routes and by the client.

use axum::http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the API: routes below `/v1` stay as they are, and each addition raises the second number.
pub const API_VERSION: &str = "1.0";
/// The header with the version of the API, in answers always, in requests if the client needs at least that one.
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("imagelet-api-version");
/// Response of `GET /v1/version`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentVersion {
    /// The version of the program.
    pub version: String,
    /// The version of the API.
    pub api_version: String,
    /// Id of the process.
    pub pid: u32,
    /// True if this caller may use the routes that change state.
    pub may_change: bool,
}

/// Error response of every route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// gRPC status code of the error: `NotFound`, `InvalidArgument`, `PermissionDenied`, `Unavailable`, …
    pub code: String,
    /// Human-readable message in one line.
    pub message: String,
    /// Waiting reason of a container that fails with this error: `ErrImagePull`, `ImagePullBackOff`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Empty response of a route that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}
