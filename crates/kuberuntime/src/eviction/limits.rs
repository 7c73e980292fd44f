//! [`exceeded_limit`]: whether a pod uses more of the node's disk than it may: limits of its `emptyDir` volumes, of all its containers
//! together, and of each container, in this order. Pure; the kubelet's messages.

use oci::Quantity;

use super::EPHEMERAL_STORAGE;
use super::disk_use::PodDiskUse;
use super::messages::bytes;
use crate::pod::{Container, Pod, Volume, VolumeSource, is_in_memory, size_limit};

/// Returns true if a pod sets any limit of this kind.
pub(super) fn has_limits(pod: &Pod) -> bool {
    let of_volumes = pod.spec.volumes.iter().any(|volume| empty_dir_limit(volume).is_some());
    of_volumes || pod.spec.containers.iter().any(|container| container.resources.limits.contains_key(EPHEMERAL_STORAGE))
}

/// Returns the message of the first limit that a pod exceeds. Disk use that cannot be measured exceeds every limit.
#[must_use]
pub(crate) fn exceeded_limit(of: &PodDiskUse) -> Option<String> {
    let pod = &of.pod;
    for volume in &pod.spec.volumes {
        let Some(limit) = empty_dir_limit(volume) else { continue };
        let Some(used) = of.volumes.get(&volume.name) else { continue };
        let subject = format!("Usage of EmptyDir volume \"{}\"", volume.name);
        match used.amount() {
            Err(reason) => return Some(unmeasurable(&subject, &format!("the limit \"{limit}\""), reason)),
            Ok(used) if bytes(used.bytes) > limit => {
                return Some(format!("{subject} exceeds the limit \"{limit}\". "));
            }
            Ok(_) => {}
        }
    }
    if let Some(limit) = pod_limit(pod).map(Quantity::bytes) {
        let subject = "Pod ephemeral local storage usage";
        let limit_text = format!("the total limit of containers {limit}");
        match of.total() {
            Err(reason) => return Some(unmeasurable(subject, &limit_text, reason)),
            Ok(used) if bytes(used.bytes) > limit => return Some(format!("{subject} exceeds {limit_text}. ")),
            Ok(_) => {}
        }
    }
    for container in &pod.spec.containers {
        let limit = container.resources.limits.get(EPHEMERAL_STORAGE).copied();
        let (Some(limit), Some(used)) = (limit, of.containers.get(&container.name)) else { continue };
        // Where the use of a container is not known, neither is that of the pod.
        if used.bytes().is_ok_and(|used| bytes(used) > limit) {
            let name = &container.name;
            return Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "));
        }
    }
    None
}

/// Returns the message about disk use that is unknown, which the kubelet does not have.
fn unmeasurable(subject: &str, limit: &str, reason: &str) -> String {
    format!("{subject} could not be measured and counts as more than {limit}: {reason}. ")
}

/// Returns the limit of an `emptyDir` on disk. The kernel enforces limits in memory; a limit of zero is none.
fn empty_dir_limit(volume: &Volume) -> Option<Quantity> {
    match VolumeSource::of(volume) {
        VolumeSource::EmptyDir(directory) if !is_in_memory(directory) => {
            size_limit(directory).filter(|limit| *limit > Quantity::ZERO)
        }
        _ => None,
    }
}

/// Returns the sum of the limits that containers set, or the highest of an init container; `None` if no container sets
/// one.
fn pod_limit(pod: &Pod) -> Option<i64> {
    let limit = |container: &Container| container.resources.limits.get(EPHEMERAL_STORAGE).map(|limit| limit.value());
    let normal = pod.spec.containers.iter().filter_map(limit).reduce(i64::saturating_add);
    normal.max(pod.spec.init_containers.iter().filter_map(limit).max())
}
