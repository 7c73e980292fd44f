//! The calls of [`ImageEngine`](cri_api::engine::ImageEngine) and [`ImageService`](cri_api::ImageService) and their answers as they
//! travel over the store's socket, in JSON. Written and read by both ends: [`super::engine`] and
//! [`RemoteStore`](super::remote_store::RemoteStore).

use std::path::PathBuf;
use std::time::Duration;

use cri_api::engine::{
    CheckProgress, CheckRequest, ConvertRequest, ExportOptions, MountRequest, Platforms, PodmanStoreRequest,
};
use cri_api::{Error, ImageSpec, Kind, PullEvent, Reason};
use oci::{RegistryAuth, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call of the traits.
#[derive(Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "camelCase")]
pub(super) enum Call {
    ListImages { image: Option<ImageSpec> },
    ImageStatus { image: ImageSpec, verbose: bool },
    PullImage { image: ImageSpec, auth: Option<WireAuth> },
    RemoveImage { image: ImageSpec },
    ImageFsInfo,
    InspectImage { image: ImageSpec },
    ImageUsage { image: ImageSpec },
    ImageLayers,
    RemoveImages { images: Vec<ImageSpec> },
    PinImage { image: ImageSpec, pinned: bool },
    TagImage { image: ImageSpec, name: String },
    UntagImage { image: ImageSpec, names: Vec<String> },
    ImageDocuments { image: ImageSpec },
    CheckImages { request: CheckRequest },
    ConvertImages { request: ConvertRequest },
    UnfinishedPulls,
    DropUnfinishedPulls { all: bool },
    MountImage { request: MountRequest },
    Mounts,
    PodmanStore { request: PodmanStoreRequest },
    LeaseLayers { text: String },
    ImportImages { path: PathBuf, name: Option<String>, images: Vec<String>, platforms: Platforms },
    ExportImages { images: Vec<String>, path: PathBuf, options: ExportOptions },
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

/// Progress of a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Progress {
    /// Of a check.
    Check(CheckProgress),
    /// Of a pull or an import.
    Pull(PullEvent),
}

/// A line of the answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// Progress of a running call.
    Progress(Progress),
    /// The last line of a call that succeeded.
    Answer(Value),
    /// The last line of a call that failed.
    Error(WireError),
}

/// An [`Error`] as it travels.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireError {
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    needed_bytes: Option<u64>,
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().as_str().to_owned(),
            reason: error.reason().map(|reason| reason.as_str().to_owned()),
            message: error.message().to_owned(),
            retry_after: error.retry_after(),
            needed_bytes: error.needed_bytes(),
        }
    }
}

impl From<WireError> for Error {
    fn from(wire: WireError) -> Self {
        let mut error = Self::new(Kind::of_name(&wire.kind).unwrap_or(Kind::Unknown), wire.message);
        if let Some(reason) = wire.reason.as_deref().and_then(Reason::of_name) {
            error = error.with_reason(reason);
        }
        if let Some(after) = wire.retry_after {
            error = error.with_retry_after(after);
        }
        match wire.needed_bytes {
            Some(bytes) => error.with_needed_bytes(bytes),
            None => error,
        }
    }
}
