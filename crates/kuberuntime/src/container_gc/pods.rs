//! [`PodStates`]: what the collector must know of pods. Whoever has the pods answers it; [`NoPodSource`] stands in where
//! nobody has.

/// States of the pods of a node, by uid.
pub trait PodStates: Send + Sync {
    /// Returns true if every source of pods has reported. Before that, an unknown pod may only be late.
    fn sources_ready(&self) -> bool;

    /// Returns true if everything of the pod may be removed: it is deleted and has ended, or the sources are ready and
    /// none has it.
    fn content_removable(&self, pod_uid: &str) -> bool;

    /// Returns true if the pod's containers may be removed under disk pressure: it has ended, deleted or not.
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
