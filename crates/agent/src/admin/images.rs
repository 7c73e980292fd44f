//! Images over the API: the bodies of requests and answers. Plain data. Called by the routes of images and by clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine_wire::WireAuth;
use crate::api::wire::ApiError;

/// The answer to `GET /v1/images`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageList {
    /// Images that are present; with the parameter `image` only the one of that name or id.
    pub images: Vec<cri_api::Image>,
}

/// The body of `POST /v1/images/pull`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PullBody {
    /// The image, as on the command line.
    pub(super) image: String,
    /// `Always` if it is not given: the registry is asked what the name stands for. `IfNotPresent` pulls only what is missing.
    #[serde(default)]
    pub(super) policy: Option<String>,
    /// The credential to pull with; without one the agent looks for those of its node.
    #[serde(default)]
    pub(super) auth: Option<WireAuth>,
}

/// The end of a pull that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PulledImage {
    /// The image as it was requested.
    pub image: String,
    /// Id of the image, as the runtime has it.
    pub image_ref: String,
    /// False if the image was present and nothing was pulled.
    pub pulled: bool,
}

/// The answer to `POST /v1/images/remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedImages {
    /// Results in the order of the request.
    pub results: Vec<RemovalResult>,
}

/// The removal of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovalResult {
    /// The image as it was named.
    pub image: String,
    /// Why it could not be removed. An absent image is no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ApiError>,
}
