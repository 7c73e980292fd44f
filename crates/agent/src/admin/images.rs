//! Images over the API: the bodies of requests and answers. Plain data. Called by the routes of images and by clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine_wire::WireAuth;
use crate::api::wire::ApiError;

/// Response of `GET /v1/images`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageList {
    /// Images that are present; with the parameter `image`, only the image with that name or ID.
    pub images: Vec<cri_api::Image>,
}

/// The body of `POST /v1/images/pull`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PullBody {
    /// Image reference, as on the command line.
    pub(super) image: String,
    /// `Always` if it is not given: the registry is asked what the name stands for. `IfNotPresent` pulls only what is missing.
    #[serde(default)]
    pub(super) policy: Option<String>,
    /// Credential for the registry; without it, the agent uses the credentials of its node.
    #[serde(default)]
    pub(super) auth: Option<WireAuth>,
}

/// Result of a successful pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PulledImage {
    /// The image as it was requested.
    pub image: String,
    /// Image ID as reported by the runtime.
    pub image_ref: String,
    /// False if the image was already present and nothing was pulled.
    pub pulled: bool,
}

/// Response of `POST /v1/images/remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedImages {
    /// Results, in the order of the request.
    pub results: Vec<RemovalResult>,
}

/// Result of an image's removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovalResult {
    /// The image as given in the request.
    pub image: String,
    /// Error if the removal failed. An absent image is not an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ApiError>,
}
