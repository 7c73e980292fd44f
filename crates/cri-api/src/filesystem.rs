//! [`FilesystemUsage`]: the space that images and containers use. Plain types, used by both services.

use serde::{Deserialize, Serialize};

/// Use of one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Answer of [`ImageService::image_fs_info`](crate::ImageService::image_fs_info). Callers read the first entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FsInfo {
    /// File systems that hold images.
    pub image_filesystems: Vec<FilesystemUsage>,
    /// File systems that hold containers, where they differ from those of images.
    pub container_filesystems: Vec<FilesystemUsage>,
}
