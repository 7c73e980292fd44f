//! [`NodeStatus`]: the node's images and their disk, in the shapes of a Kubernetes Node's `status.images` and
//! `status.conditions`, and [`ImageList`], the cached list behind them. Plain data; [`ImageGcManager::status`](super::ImageGcManager::status) makes it, `imagelet status`
//! shows it.

use std::sync::Arc;

use base::lock::Mutex;
use cri_api::engine::UnfinishedPulls;
use cri_api::{FilesystemUsage, Image};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::disk::DiskSpace;
use super::options::GcOptions;
use super::pressure::{Disks, Observation, Pressure};
use super::pressure_monitor::MeasuredDisks;

/// How many names of one image a Node shows.
const MAX_NAMES: usize = 5;

/// The images of a Node's status: the largest first, no more than `nodeStatusMaxImages`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct NodeImages(Vec<NodeImage>);

/// An image of a Node's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImage {
    /// Up to five names, those by digest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Size as reported by the image service.
    pub size_bytes: u64,
}

impl NodeImages {
    /// The images of a Node's status. `max` is `nodeStatusMaxImages`: below zero there is no limit.
    #[must_use]
    pub fn of(images: &[Image], max: i32) -> Self {
        let mut order: Vec<&Image> = images.iter().collect();
        order.sort_by(|a, b| by_size(a, b));
        order.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        let one = |image: &Image| NodeImage {
            names: image.repo_digests.iter().chain(&image.repo_tags).take(MAX_NAMES).cloned().collect(),
            size_bytes: image.size,
        };
        Self(order.into_iter().map(one).collect())
    }

    /// The images, the largest first.
    #[must_use]
    pub fn as_slice(&self) -> &[NodeImage] {
        &self.0
    }
}

/// A node condition, as in the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// Type of the condition: `DiskPressure`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// Time of the last check.
    pub last_heartbeat_time: Timestamp,
    /// Time of the last change of the status.
    pub last_transition_time: Timestamp,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: &'static str,
}

impl NodeCondition {
    /// Disk pressure in the kubelet's words.
    fn disk_pressure(pressure: &Pressure, now: Timestamp) -> Self {
        let (status, reason, message) = match pressure.under {
            Some(true) => ("True", "KubeletHasDiskPressure", "kubelet has disk pressure"),
            Some(false) => ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            None => ("Unknown", "NodeStatusUnknown", "the file systems have not been measured"),
        };
        Self {
            kind: "DiskPressure",
            status,
            last_heartbeat_time: second(now),
            last_transition_time: second(pressure.since.unwrap_or(now)),
            reason,
            message,
        }
    }
}

/// Kubernetes' times have whole seconds.
fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A file system, with the field names of the kubelet's summary API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FsStatus {
    /// A directory on the file system.
    pub path: String,
    /// Total bytes.
    pub capacity_bytes: u64,
    /// Available bytes.
    pub available_bytes: u64,
    /// Used bytes.
    pub used_bytes: u64,
    /// Total inodes; 0 on file systems with dynamic inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Used inodes.
    pub inodes_used: u64,
    /// Bytes used by images, as reported by the image service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_bytes: Option<u64>,
    /// Inodes used by images, as reported by the image service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_inodes: Option<u64>,
}

impl FsStatus {
    fn new(path: String, space: DiskSpace) -> Self {
        Self {
            path,
            capacity_bytes: space.capacity,
            available_bytes: space.available,
            used_bytes: space.capacity - space.available,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            inodes_used: space.inodes - space.inodes_free,
            images_bytes: None,
            images_inodes: None,
        }
    }
}

/// Images of the node and their file systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Images, the largest first, limited as in a Node's status.
    pub images: NodeImages,
    /// Total number of images.
    pub image_count: usize,
    /// Node conditions; only `DiskPressure`.
    pub conditions: Vec<NodeCondition>,
    /// The file system of the images.
    pub image_fs: FsStatus,
    /// File system of the containers' writable layers, if it is a different one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<FsStatus>,
    /// File system of the root directory, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_fs: Option<FsStatus>,
    /// Eviction thresholds with their current values.
    pub eviction_signals: Vec<Observation>,
    /// Data that interrupted pulls left for later ones, where the service keeps it. The sizes of images do not include it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished_pulls: Option<UnfinishedPulls>,
    /// Engine that pulls images for an external runtime, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_engine: Option<String>,
}

impl NodeStatus {
    pub(super) fn new(measured: MeasuredDisks, images: &[Image], options: &GcOptions) -> Self {
        let Disks { images: image_disk, containers, node } = measured.disks;
        let first = measured.info.image_filesystems.first();
        let path = |fs: Option<&FilesystemUsage>| fs.map(|fs| fs.mountpoint.clone()).unwrap_or_default();
        let image_fs = FsStatus {
            images_bytes: first.and_then(|fs| fs.used_bytes),
            images_inodes: first.and_then(|fs| fs.inodes_used),
            ..FsStatus::new(path(first), image_disk.unwrap_or_default())
        };
        let containers_path = path(measured.info.container_filesystems.first());
        let node_path = options.pressure.node_directory.as_ref().map(|path| path.display().to_string());
        Self {
            images: NodeImages::of(images, options.node_status_max_images),
            image_count: images.len(),
            conditions: vec![NodeCondition::disk_pressure(&measured.pressure, (options.wall_clock)())],
            image_fs,
            container_fs: containers.map(|space| FsStatus::new(containers_path, space)),
            node_fs: node.map(|space| FsStatus::new(node_path.unwrap_or_default(), space)),
            eviction_signals: measured.observations,
            unfinished_pulls: measured.unfinished,
            pull_engine: None,
        }
    }

    /// Returns true if the node reports disk pressure.
    #[must_use]
    pub fn has_disk_pressure(&self) -> bool {
        self.conditions.iter().any(|condition| condition.kind == "DiskPressure" && condition.status == "True")
    }
}

/// A cached list of images.
#[derive(Default)]
pub(super) struct ImageList {
    /// Guards the list, the largest image first; `None` until the first refresh.
    images: Mutex<Option<Arc<[Image]>>>,
}

impl ImageList {
    /// Replaces the list.
    pub(super) fn replace(&self, mut images: Vec<Image>) {
        images.sort_by(by_size);
        *self.images.lock() = Some(images.into());
    }

    /// The last list, the largest image first; `None` before the first refresh.
    pub(super) fn get(&self) -> Option<Arc<[Image]>> {
        self.images.lock().clone()
    }
}

/// Orders images by size, the largest first, and those of one size by id, the last first.
pub(super) fn by_size(a: &Image, b: &Image) -> std::cmp::Ordering {
    b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id))
}

#[cfg(test)]
#[path = "node_status_tests.rs"]
mod tests;
