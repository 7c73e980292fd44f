//! How containers are stopped: how long each may take ([`grace_period`]), and in which order those of a pod go
//! ([`termination_order`]). Pure. Called when containers and pods are stopped.

use crate::actions::KillReason;
use crate::labels::ContainerInfo;
use crate::pod::{Container, Pod};

/// The least that a container gets, in seconds.
pub(crate) const MINIMUM_GRACE_PERIOD: i64 = 2;

/// Returns how many seconds a container may take to end, its preStop hook included. A deletion's own period takes
/// precedence over everything; a probe that failed may have one; the pod has one.
#[must_use]
pub(crate) fn grace_period(pod: &Pod, container: &Container, reason: Option<KillReason>) -> i64 {
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        return seconds.max(0);
    }
    let Some(of_pod) = pod.spec.termination_grace_period_seconds else { return MINIMUM_GRACE_PERIOD };
    let probe = match reason {
        Some(KillReason::LivenessProbe) => container.liveness_probe.as_ref(),
        Some(KillReason::StartupProbe) => container.startup_probe.as_ref(),
        Some(KillReason::Changed | KillReason::Unknown) | None => None,
    };
    probe.and_then(|probe| probe.termination_grace_period_seconds).unwrap_or(of_pod).max(0)
}

/// Returns the grace period of a container whose pod is no longer known, as recorded on it when it was created.
#[must_use]
pub(crate) fn orphan_grace_period(info: &ContainerInfo) -> i64 {
    info.deletion_grace_period.or(info.termination_grace_period).unwrap_or(MINIMUM_GRACE_PERIOD).max(0)
}

/// Seconds that are left of a grace period after a hook took `hook` seconds, never less than the minimum.
#[must_use]
pub(crate) fn after_hook(grace_period: i64, hook: i64) -> i64 {
    grace_period.saturating_sub(hook).max(MINIMUM_GRACE_PERIOD)
}

/// Returns the containers of a pod in the steps in which they are stopped: first everything but sidecars, together;
/// then the sidecars one by one, the last one first. A step begins when the one before it is done.
#[must_use]
pub(crate) fn termination_order(pod: &Pod) -> Vec<Vec<&str>> {
    let is_sidecar = |name: &str| pod.spec.init_containers.iter().any(|c| c.is_sidecar() && c.name == name);
    let others = pod.all_containers().map(|(_, container)| container.name.as_str()).filter(|name| !is_sidecar(name));
    let sidecars = pod.spec.init_containers.iter().rev().filter(|container| container.is_sidecar());
    std::iter::once(others.collect()).chain(sidecars.map(|container| vec![container.name.as_str()])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        Pod::from_json(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "terminationGracePeriodSeconds": 30,
            "initContainers": [
                {"name": "s1", "image": "x", "restartPolicy": "Always"}, {"name": "i", "image": "x"},
                {"name": "s2", "image": "x", "restartPolicy": "Always"},
            ],
            "containers": [{"name": "a", "image": "x", "livenessProbe": {
                "exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 4,
            }}, {"name": "b", "image": "x"}],
        }}))
        .expect("a pod")
    }

    #[test]
    fn sidecars_go_last_and_backwards() {
        assert_eq!(termination_order(&pod()), [vec!["i", "a", "b"], vec!["s2"], vec!["s1"]]);
    }

    #[test]
    fn the_nearest_grace_period_counts() {
        let mut pod = pod();
        let of = |pod: &Pod, reason| grace_period(pod, &pod.spec.containers[0], reason);
        assert_eq!(of(&pod, None), 30);
        assert_eq!(of(&pod, Some(KillReason::LivenessProbe)), 4);
        assert_eq!(of(&pod, Some(KillReason::StartupProbe)), 30);
        assert_eq!(of(&pod, Some(KillReason::Changed)), 30);
        pod.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(of(&pod, Some(KillReason::LivenessProbe)), 0);
        pod.metadata.deletion_grace_period_seconds = None;
        pod.spec.termination_grace_period_seconds = None;
        assert_eq!(of(&pod, Some(KillReason::LivenessProbe)), MINIMUM_GRACE_PERIOD);
        assert_eq!((after_hook(30, 10), after_hook(30, 29), after_hook(30, 90)), (20, 2, 2));
        let info = ContainerInfo { termination_grace_period: Some(9), ..ContainerInfo::default() };
        assert_eq!((orphan_grace_period(&info), orphan_grace_period(&ContainerInfo::default())), (9, 2));
    }
}
