//! Decision about a pod that the runtime shows: [`judge`]. Pure. A pod that this program did not make is left alone,
//! because another program may keep its pods in the same runtime. A pod of this program that no source wants is ended,
//! but not before the desired pods are known. Called by housekeeping.

use super::runtime_pods::RuntimePod;
use crate::sources::{CONFIG_ORIGIN_ANNOTATION, DesiredPods};

/// Treatment of a pod that has no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownPodVerdict {
    /// A source wants the pod.
    Wanted,
    /// Another program made the pod: it is not touched.
    Foreign,
    /// The pod's manifest, or the directory of it, cannot be read now: the pod is left as it is.
    Held,
    /// A source that has not reported yet may want it.
    TooEarly,
    /// The pod's own manifest makes another pod of the same name now: the pod is ended and removed.
    Replaced,
    /// No source wants it: it is ended and removed.
    Orphan,
}

/// Decides about a pod that has no worker.
pub(super) fn judge(pod: &RuntimePod, desired: &DesiredPods) -> UnknownPodVerdict {
    if desired.pods.contains_key(&pod.owner.uid) {
        return UnknownPodVerdict::Wanted;
    }
    let Some(origin) = &pod.origin else { return UnknownPodVerdict::Foreign };
    if desired.holds(origin) {
        return UnknownPodVerdict::Held;
    }
    if is_replaced(pod, origin, desired) {
        return UnknownPodVerdict::Replaced;
    }
    if desired.is_ready_for(origin) { UnknownPodVerdict::Orphan } else { UnknownPodVerdict::TooEarly }
}

/// Returns true if the pod's own manifest has another pod of the same name now, so that no source can still report it.
fn is_replaced(pod: &RuntimePod, origin: &str, desired: &DesiredPods) -> bool {
    desired.pods.values().map(|other| &other.metadata).any(|other| {
        other.name == pod.owner.name
            && other.namespace == pod.owner.namespace
            && other.annotations.get(CONFIG_ORIGIN_ANNOTATION).is_some_and(|from| from == origin)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pod::Pod;
    use crate::sources::API_SOURCE;

    #[test]
    fn only_what_is_ours_and_surely_unwanted_is_ended() {
        let mut pod = RuntimePod { origin: Some("/etc/pods/a.yaml".into()), ..RuntimePod::default() };
        pod.owner.uid = "u".into();
        let mut desired = DesiredPods::default();
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::TooEarly);
        let mut other = Pod::default();
        for (origin, verdict) in
            [("/etc/pods/b.yaml", UnknownPodVerdict::TooEarly), ("/etc/pods/a.yaml", UnknownPodVerdict::Replaced)]
        {
            other.metadata.annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), origin.to_owned());
            desired.pods.insert("v".into(), Arc::new(other.clone()));
            assert_eq!(judge(&pod, &desired), verdict, "{origin}");
        }
        desired.pods.clear();
        desired.ready = true;
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::Orphan);
        desired.held.insert("/etc/pods/a.yaml".into());
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::Held);
        desired.held.clear();
        for (unread, verdict) in [
            ("/etc/pods", UnknownPodVerdict::Held),
            ("/etc/pods/a.yaml", UnknownPodVerdict::Held),
            ("/etc/pod", UnknownPodVerdict::Orphan),
        ] {
            desired.unread = [unread.to_owned()].into();
            assert_eq!(judge(&pod, &desired), verdict, "{unread}");
        }
        // The API server has reported its pods; a local source that cannot be read has no part in them.
        (desired.ready, desired.cluster_ready) = (false, Some(true));
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::TooEarly);
        pod.origin = Some(API_SOURCE.to_owned());
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::Orphan);
        desired.cluster_ready = Some(false);
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::TooEarly);
        pod.origin = None;
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::Foreign);
        desired.pods.insert("u".into(), Arc::default());
        assert_eq!(judge(&pod, &desired), UnknownPodVerdict::Wanted);
    }
}
