//! The calls of [`ImageEngine`](engine_api::ImageEngine) and their answers as they travel over the admin socket, in JSON.
//! Written and read by both ends: [`super::engine`] and [`AgentEngine`](super::engine_client::AgentEngine).

use std::path::PathBuf;
use std::time::Duration;

use cri_api::{Error, ImageSpec, Kind, PullEvent, Reason};
use engine_api::{CheckProgress, CheckRequest, ConvertRequest, ExportOptions, MountRequest, Platforms};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call of the trait.
#[derive(Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "camelCase")]
pub(super) enum Call {
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
    LeaseLayers { text: String },
    ImportImages { path: PathBuf, name: Option<String>, images: Vec<String>, platforms: Platforms },
    ExportImages { images: Vec<String>, path: PathBuf, options: ExportOptions },
}

/// Progress of a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Progress {
    /// Of a check.
    Check(CheckProgress),
    /// Of an import.
    Pull(PullEvent),
}

/// A line of the answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// The call goes on.
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
