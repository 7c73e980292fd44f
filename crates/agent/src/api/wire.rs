//! The words that every request and answer of the API shares: its version, its errors. Plain data, the same on both sides. Called by the
//! routes and by the client.

use std::time::Duration;

use axum::http::HeaderName;
use cri_api::{Error, Kind, Reason};
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
    /// Identity of the process, which answers of its CRI socket carry as well.
    #[serde(default)]
    pub instance: String,
    /// True if the agent keeps images in the store below its root, also if a runtime reads them there.
    #[serde(default)]
    pub has_store: bool,
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
    /// Waiting reason of a container that fails with this error: `ErrImagePull`, `ImagePullBackOff`, …; otherwise the cause, if it is
    /// known: `disk-full`, `rate-limited`, `signature-invalid`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time after which the registry accepts the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_milliseconds: Option<u64>,
    /// Bytes that must be free for the same request to succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_bytes: Option<u64>,
}

impl From<&Error> for ApiError {
    fn from(error: &Error) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            code: error.kind().as_str().to_owned(),
            message: error.message().to_owned(),
            reason: error.reason().map(|reason| reason.as_str().to_owned()),
            retry_after_milliseconds: error.retry_after().map(milliseconds),
            needed_bytes: error.needed_bytes(),
        }
    }
}

impl From<ApiError> for Error {
    fn from(wire: ApiError) -> Self {
        let mut error = Self::new(Kind::of_name(&wire.code).unwrap_or(Kind::Unknown), wire.message);
        if let Some(reason) = wire.reason.as_deref().and_then(Reason::of_name) {
            error = error.with_reason(reason);
        }
        if let Some(time) = wire.retry_after_milliseconds {
            error = error.with_retry_after(Duration::from_millis(time));
        }
        match wire.needed_bytes {
            Some(bytes) => error.with_needed_bytes(bytes),
            None => error,
        }
    }
}

/// Empty response of a route that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_kind_reason_and_numbers() {
        for (kind, reason) in Kind::ALL.into_iter().zip(Reason::ALL.into_iter().cycle()) {
            let error = Error::new(kind, "x").with_reason(reason);
            let error = error.with_retry_after(Duration::from_millis(7)).with_needed_bytes(9);
            let text = serde_json::to_string(&ApiError::from(&error)).expect("JSON");
            assert_eq!(Error::from(serde_json::from_str::<ApiError>(&text).expect("an error")), error);
        }
    }
}
