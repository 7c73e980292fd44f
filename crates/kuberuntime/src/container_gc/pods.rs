//! [`PodStates`]: what the collector must know of pods. Whoever has the pods answers it; [`NoPodSource`] stands in where
//! nobody has.

/// Who knows which pods there should be. Pods are named by uid.
pub trait PodStates: Send + Sync {
    /// Whether every source of pods has told what it has. Before that, an unknown pod may only be late.
    fn sources_ready(&self) -> bool;

    /// Whether everything of the pod may go: it is deleted and has ended, or, once the sources are ready, nobody knows it.
    fn content_removable(&self, pod_uid: &str) -> bool;

    /// Whether its containers may go under disk pressure: it has ended, deleted or not.
    fn runtime_removable(&self, pod_uid: &str) -> bool;
}

/// No source of pods: every pod may be wanted by somebody else, for example a kubelet. Only what the policy has too much
/// of goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPodSource;

impl PodStates for NoPodSource {
    fn sources_ready(&self) -> bool {
        false
    }

    fn content_removable(&self, _pod_uid: &str) -> bool {
        false
    }

    fn runtime_removable(&self, _pod_uid: &str) -> bool {
        false
    }
}
