//! Plain types of a mount of an image.

use std::path::PathBuf;

use cri_api::ImageSpec;
use serde::{Deserialize, Serialize};

/// Request of [`ImageEngine::mount_image`](crate::ImageEngine::mount_image).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountRequest {
    /// The image to mount.
    pub image: ImageSpec,
    /// The directory on which its file system appears. It must exist.
    pub target: PathBuf,
    /// A directory for what is written, empty or from an earlier mount; `None` mounts read-only.
    pub writable: Option<PathBuf>,
}

/// Answer of [`ImageEngine::mount_image`](crate::ImageEngine::mount_image).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedImage {
    /// Image id of the mounted image.
    pub id: String,
    /// Number of layers below the mount.
    pub layers: usize,
}
