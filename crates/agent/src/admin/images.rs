//! Images and their store over the API: the bodies of requests and answers. Plain data. Called by the routes of images and by clients.

use std::path::PathBuf;

use cri_api::engine::{ExportOptions, ImageMount, Platforms};
use oci::{RegistryAuth, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::wire::ApiError;

/// Response of `GET /v1/images`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageList {
    /// Images that are present; with the parameter `image`, only the image with that name or ID.
    pub images: Vec<cri_api::Image>,
}

/// The body of `POST /v1/images/pull`.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PullBody {
    /// Image reference, as on the command line.
    pub(super) image: String,
    /// `Always` if it is not given: the registry is asked what the name stands for. `IfNotPresent` pulls only what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    /// Credential for the registry; without it, the agent uses the credentials of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) auth: Option<WireAuth>,
}

/// A registry credential. Sent only in the body of a request.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireAuth {
    username: String,
    password: String,
    auth: String,
    server_address: String,
    identity_token: String,
    registry_token: String,
}

impl From<&RegistryAuth> for WireAuth {
    fn from(auth: &RegistryAuth) -> Self {
        let exposed = |secret: &Secret| secret.expose().to_owned();
        Self {
            username: auth.username.clone(),
            password: exposed(&auth.password),
            auth: exposed(&auth.auth),
            server_address: auth.server_address.clone(),
            identity_token: exposed(&auth.identity_token),
            registry_token: exposed(&auth.registry_token),
        }
    }
}

impl From<WireAuth> for RegistryAuth {
    fn from(wire: WireAuth) -> Self {
        Self {
            username: wire.username,
            password: Secret::new(wire.password),
            auth: Secret::new(wire.auth),
            server_address: wire.server_address,
            identity_token: Secret::new(wire.identity_token),
            registry_token: Secret::new(wire.registry_token),
        }
    }
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

/// Response of `POST /v1/images/remove` and `POST /v1/images/remove-batch`.
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

/// Body of `POST /v1/images/remove-batch`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageNames {
    /// Names or IDs of images.
    pub(super) images: Vec<String>,
}

/// Body of `POST /v1/images/pin`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PinBody {
    /// Name or ID of the image.
    pub(super) image: String,
    /// True to pin the image, false to remove its pin.
    pub(super) pinned: bool,
}

/// Body of `POST /v1/images/tag` and `POST /v1/images/untag`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamesBody {
    /// Name or ID of the image.
    pub(super) image: String,
    /// Names to add or to remove. Without names, all tags are removed.
    pub(super) names: Vec<String>,
}

/// Response of `POST /v1/images/tag` and `POST /v1/images/untag`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct ChangedNames {
    /// The names in normal form.
    pub(super) names: Vec<String>,
}

/// Response of `POST /v1/unfinished-pulls/remove`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FreedBytes {
    /// Bytes that were freed.
    pub(super) freed_bytes: u64,
}

/// Response of `GET /v1/owner`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreOwner {
    /// ID of the process.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
}

/// Response of `GET /v1/mounts`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Mounts {
    /// The mounts, by directory.
    pub(super) mounts: Vec<ImageMount>,
}

/// Body of `POST /v1/leases`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseBody {
    /// Name or ID of an image, or the digest of a layer.
    pub(super) image: String,
}

/// Event of `POST /v1/leases`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct LeasedLayers {
    /// The layers, lowest first, with their files in the store. For programs of the same version.
    pub(super) stack: serde_json::Value,
}

/// Body of `POST /v1/files/import`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileImport {
    /// Path of an archive or of a directory with an image layout.
    pub(super) path: PathBuf,
    /// Name for the image, instead of those in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Images of the archive; by default all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) images: Vec<String>,
    /// Platforms to import.
    pub(super) platforms: Platforms,
}

/// Body of `POST /v1/files/export`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileExport {
    /// Path of the file or directory to write.
    pub(super) path: PathBuf,
    /// Names or IDs of images.
    pub(super) images: Vec<String>,
    /// Format, compression and platforms.
    pub(super) options: ExportOptions,
}
