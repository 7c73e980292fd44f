//! [`rank`]: the order in which pods are evicted under disk pressure: those whose use cannot be measured first, then those that use more than they
//! requested, then by priority, then by how much more they use. Pure; the kubelet's order.

use std::cmp::Reverse;

use image_manager::gc::{EvictionCause, Signal};
use oci::Quantity;

use super::EPHEMERAL_STORAGE;
use super::disk_use::PodDiskUse;
use crate::pod::Pod;

/// The parts of a pod's disk use that count, and in which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    pub writable_layers: bool,
    pub logs_and_volumes: bool,
    /// Inodes, not bytes.
    pub inodes: bool,
}

impl From<&EvictionCause> for Measure {
    fn from(cause: &EvictionCause) -> Self {
        let EvictionCause { signal, writable_layers, logs_and_volumes, .. } = *cause;
        let inodes = matches!(signal, Signal::ImageFsInodesFree | Signal::NodeFsInodesFree);
        Self { writable_layers, logs_and_volumes, inodes }
    }
}

impl Measure {
    /// Returns the amount of a pod, in bytes or inodes; `None` if a part that counts cannot be measured.
    fn amount(self, of: &PodDiskUse) -> Option<i128> {
        let unit = |amount: super::DiskAmount| i128::from(if self.inodes { amount.inodes } else { amount.bytes });
        let mut sum = 0;
        if self.writable_layers {
            sum += of.containers.values().map(|container| unit(container.writable_layer)).sum::<i128>();
        }
        if self.logs_and_volumes {
            for tree in of.trees() {
                sum += unit(tree.amount().ok()?);
            }
        }
        Some(sum)
    }

    /// Returns the amount that a pod requested. Inodes cannot be requested.
    fn requested(self, pod: &Pod) -> i128 {
        if self.inodes {
            return 0;
        }
        let request = |container: &crate::pod::Container| {
            let found = container.resources.requests.get(EPHEMERAL_STORAGE).copied();
            i128::from(found.unwrap_or(Quantity::ZERO).value())
        };
        let normal: i128 = pod.spec.containers.iter().map(request).sum();
        let init = pod.spec.init_containers.iter().map(request).max().unwrap_or(0);
        normal.max(init)
    }
}

/// Sorts pods: the one to be evicted first stands first.
pub(crate) fn rank(pods: &mut [PodDiskUse], measure: Measure) {
    pods.sort_by_key(|of| {
        let (used, requested) = (measure.amount(of), measure.requested(&of.pod));
        let above = used.map(|used| used - requested);
        let priority = of.pod.spec.priority.unwrap_or(0);
        (above.is_some(), Reverse(above > Some(0)), priority, Reverse(above))
    });
}
