//! Names below the directory of a pod, as the kubelet has them.

use crate::pod::VolumeSource;

/// The directory of all volumes of a pod.
pub(super) const VOLUMES: &str = "volumes";

/// The directory of a volume's plugin, by the kubelet's name; `None` for volumes that have none on the node.
pub(super) fn plugin_directory(source: &VolumeSource) -> Option<&'static str> {
    match source {
        VolumeSource::EmptyDir(_) => Some("kubernetes.io~empty-dir"),
        VolumeSource::ConfigMap(_) => Some("kubernetes.io~configmap"),
        VolumeSource::Secret(_) => Some("kubernetes.io~secret"),
        VolumeSource::DownwardApi(_) => Some("kubernetes.io~downward-api"),
        VolumeSource::Projected(_) => Some("kubernetes.io~projected"),
        VolumeSource::HostPath(_) | VolumeSource::Image(_) => None,
    }
}
