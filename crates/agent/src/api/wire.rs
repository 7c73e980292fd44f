//! The words that every request and answer of the API shares: its version, its errors. Plain data, the same on both sides. Called by the
//! routes and by the client.

use axum::http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the API: routes below `/v1` stay as they are, and each addition raises the second number.
pub const API_VERSION: &str = "1.0";
/// The header with the version of the API, in answers always, in requests if the client needs at least that one.
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("imagelet-api-version");
/// The answer to `GET /v1/version`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentVersion {
    /// The version of the program.
    pub version: String,
    /// The version of the API.
    pub api_version: String,
    /// Id of the process.
    pub pid: u32,
    /// True if this caller may change things.
    pub may_change: bool,
}

/// An error as every route of the API answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// The kind of the error, as gRPC names it: `NotFound`, `InvalidArgument`, `PermissionDenied`, `Unavailable`, …
    pub code: String,
    /// Message for people, a single line.
    pub message: String,
    /// The reason that a container would have: `ErrImagePull`, `ImagePullBackOff`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer of a route that has nothing to say but that it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}
