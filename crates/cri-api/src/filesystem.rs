//! [`FilesystemUsage`]: the space that images and containers use. Plain types, used by both services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use of one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FilesystemUsage {
    /// Time of the measurement, in nanoseconds since the epoch; above 0.
    pub timestamp: i64,
    /// Directory that holds the bytes.
    pub mountpoint: String,
    /// Bytes used by images, as the disk counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Inodes used by images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// File systems of images and containers. Callers read the first entry of each list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FsInfo {
    /// File systems that hold images.
    pub image_filesystems: Vec<FilesystemUsage>,
    /// File systems that hold containers, where they differ from those of images.
    pub container_filesystems: Vec<FilesystemUsage>,
}
