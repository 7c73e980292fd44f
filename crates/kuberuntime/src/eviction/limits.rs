//! [`exceeded_limit`]: whether a pod uses more of the node's disk than it may: limits of its `emptyDir` volumes, of all its containers
//! together, and of each container, in this order. Pure; the kubelet's messages.

use oci::Quantity;

use super::EPHEMERAL_STORAGE;
use super::disk_use::PodDiskUse;
use super::messages::bytes;
use crate::pod::{Container, EmptyDirVolume, Pod, VolumeSource};

/// Returns true if a pod sets any limit of this kind.
pub(super) fn has_limits(pod: &Pod) -> bool {
    let of_volumes = pod.spec.volumes.iter().any(|volume| empty_dir_limit(&volume.source).is_some());
    of_volumes || pod.spec.containers.iter().any(|container| container.resources.limits.contains_key(EPHEMERAL_STORAGE))
}

/// The message of the first limit that a pod exceeds.
#[must_use]
pub(crate) fn exceeded_limit(of: &PodDiskUse) -> Option<String> {
    let pod = &of.pod;
    for volume in &pod.spec.volumes {
        let Some(limit) = empty_dir_limit(&volume.source) else { continue };
        let used = of.volumes.get(&volume.name).map_or(0, |amount| amount.bytes);
        if bytes(used) > limit {
            return Some(format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{limit}\". ", volume.name));
        }
    }
    if let Some(limit) = pod_limit(pod)
        && bytes(of.total().bytes) > Quantity::bytes(limit)
    {
        let limit = Quantity::bytes(limit);
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    for container in &pod.spec.containers {
        let limit = container.resources.limits.get(EPHEMERAL_STORAGE).copied();
        let (Some(limit), Some(used)) = (limit, of.containers.get(&container.name)) else { continue };
        if bytes(used.writable_layer.bytes.saturating_add(used.logs.bytes)) > limit {
            let name = &container.name;
            return Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "));
        }
    }
    None
}

/// The limit of an `emptyDir` on disk. The kernel enforces those in memory; a limit of zero is none.
fn empty_dir_limit(source: &VolumeSource) -> Option<Quantity> {
    match source {
        VolumeSource::EmptyDir(EmptyDirVolume { medium: None, size_limit }) => {
            size_limit.filter(|limit| *limit > Quantity::ZERO)
        }
        _ => None,
    }
}

/// The sum of the limits that containers set, or the highest of an init container; `None` if nobody sets any.
fn pod_limit(pod: &Pod) -> Option<i64> {
    let limit = |container: &Container| container.resources.limits.get(EPHEMERAL_STORAGE).map(|limit| limit.value());
    let normal = pod.spec.containers.iter().filter_map(limit).reduce(i64::saturating_add);
    normal.max(pod.spec.init_containers.iter().filter_map(limit).max())
}
