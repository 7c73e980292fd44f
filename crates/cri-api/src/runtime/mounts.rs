//! The parts of the host that a container sees: mounts, devices, mapped ids.

use serde::{Deserialize, Serialize};

use crate::ImageSpec;

/// A directory or file of the host, or an image, in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Path in the container.
    pub container_path: String,
    /// Path on the host; empty where an image is mounted.
    pub host_path: String,
    /// The container cannot write there.
    pub readonly: bool,
    /// The container cannot write to mounts below it either. Wants `readonly` and private propagation.
    pub recursive_read_only: bool,
    /// Files are relabelled for SELinux.
    pub selinux_relabel: bool,
    /// Sharing of later mounts with the other side.
    pub propagation: MountPropagation,
    /// User ids as the mount shows them.
    pub uid_mappings: Vec<IdMapping>,
    /// Group ids as the mount shows them.
    pub gid_mappings: Vec<IdMapping>,
    /// The image that appears. `None`: `host_path` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// The part of the image that appears; empty is all of it.
    pub image_sub_path: String,
    /// Options of the mount, where the runtime has [`RuntimeFeatures::mount_options`](super::RuntimeFeatures::mount_options).
    pub mount_options: Vec<String>,
}

/// Sharing of mounts that are made later on one side with the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    /// Mounts are propagated in neither direction.
    #[default]
    Private,
    /// The host's appear in the container.
    HostToContainer,
    /// Both ways. Only for privileged containers.
    Bidirectional,
}

/// A range of ids on the host and in the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdMapping {
    /// First id on the host.
    pub host_id: u32,
    /// First id in the container.
    pub container_id: u32,
    /// Number of IDs.
    pub length: u32,
}

/// A device of the host in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Path in the container.
    pub container_path: String,
    /// Which it is.
    pub host_path: String,
    /// Some of `r`, `w` and `m` (mknod).
    pub permissions: String,
}
