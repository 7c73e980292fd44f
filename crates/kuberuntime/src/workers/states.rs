//! States of pods for the collection of containers ([`PodStates`]), from what the sync loop knows. Never
//! asks the runtime. A pod of another program, and what may be one's, never goes because of us.

use super::WorkerState;
use super::shared::AgentState;
use super::unknown::{UnknownPodVerdict, judge};
use crate::container_gc::PodStates;

impl PodStates for AgentState {
    fn sources_ready(&self) -> bool {
        self.desired.borrow().ready && self.last_seen().is_some()
    }

    fn content_removable(&self, pod_uid: &str) -> bool {
        if !self.sources_ready() {
            return false;
        }
        let slot = self.table().slots.get(pod_uid).cloned();
        if let Some(slot) = slot {
            return slot.is_ending() && slot.state() == WorkerState::Terminated;
        }
        let Some(seen) = self.last_seen() else { return false };
        let desired = self.desired.borrow();
        match seen.pods.get(pod_uid) {
            Some(pod) => matches!(judge(pod, &desired), UnknownPodVerdict::Replaced | UnknownPodVerdict::Orphan),
            // Nothing of it is in the runtime. Where another program keeps pods, it may be one of those; where a manifest
            // cannot be read, it may be of that.
            None => {
                !desired.pods.contains_key(pod_uid)
                    && desired.held.is_empty()
                    && seen.pods.values().all(|pod| pod.origin.is_some())
            }
        }
    }

    fn runtime_removable(&self, pod_uid: &str) -> bool {
        let slot = self.table().slots.get(pod_uid).cloned();
        match slot {
            Some(slot) => slot.state() == WorkerState::Terminated,
            None => self.content_removable(pod_uid),
        }
    }
}
