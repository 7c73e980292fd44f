//! The kubelet's messages about pods that are evicted. Pure.

use image_manager::gc::EvictionCause;
use oci::Quantity;

use super::EPHEMERAL_STORAGE;
use super::disk_use::PodDiskUse;

/// Returns a number of bytes as a quantity.
pub(super) fn bytes(value: u64) -> Quantity {
    Quantity::bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Message of a pod that is evicted because the node is short of a resource.
#[must_use]
pub(crate) fn low_resource(cause: &EvictionCause, evicted: &PodDiskUse) -> String {
    let resource = cause.signal.resource();
    let (threshold, available) = (bytes(cause.threshold), bytes(cause.available));
    let mut message =
        format!("The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. ");
    if resource != EPHEMERAL_STORAGE {
        return message;
    }
    for container in &evicted.pod.spec.containers {
        let Some(of) = evicted.containers.get(&container.name) else { continue };
        let request = container.resources.requests.get(EPHEMERAL_STORAGE).copied().unwrap_or(Quantity::ZERO);
        if let Some(used) = of.bytes().ok().map(bytes).filter(|used| *used > request) {
            message += &format!(
                "Container {} was using {used}, request is {request}, has larger consumption of {resource}. ",
                container.name
            );
        }
    }
    if let Some(reason) = evicted.trees().find_map(|tree| tree.amount().err()) {
        message += &format!("Pod ephemeral local storage usage could not be measured: {reason}. ");
    }
    message
}
