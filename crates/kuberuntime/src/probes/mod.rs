//! [`ProbeManager`]: asks the probes of containers that run, on their periods, and keeps what they said last. It stops no
//! container; it tells that something changed, and the sync of the pod decides.

use std::sync::Arc;

use image_manager::{EventRecorder, WallClock};
use tokio::sync::mpsc::UnboundedSender;

use crate::actions::ProbeResults;
use crate::handlers::Handlers;
use crate::pod::Pod;
use crate::status::ObservedPod;

/// Asks the probes of all pods.
pub struct ProbeManager {
    handlers: Arc<Handlers>,
    events: Arc<dyn EventRecorder>,
    changed: UnboundedSender<String>,
    wall_clock: WallClock,
}

impl ProbeManager {
    /// `changed` is told the uid of a pod whenever one of its results is another one than before. The clock tells how long
    /// a container has run that was there before.
    #[must_use]
    pub fn new(
        handlers: Arc<Handlers>,
        events: Arc<dyn EventRecorder>,
        changed: UnboundedSender<String>,
        wall_clock: WallClock,
    ) -> Self {
        Self { handlers, events, changed, wall_clock }
    }

    /// Takes note of what the runtime shows of a pod: asks the containers that run, and no longer those that do not. Quick;
    /// called after every look at a pod. `host_ip` stands for the address of a pod with the node's network.
    pub fn observe(&self, pod: &Arc<Pod>, observed: &ObservedPod, host_ip: Option<&str>) {
        let _ = (&self.handlers, &self.events, &self.changed, &self.wall_clock, pod, observed, host_ip);
    }

    /// What the probes of a pod said last, by containers' ids.
    #[must_use]
    pub fn results(&self, uid: &str) -> ProbeResults {
        let _ = uid;
        ProbeResults::default()
    }

    /// A pod is being ended: only readiness is still asked.
    pub fn ending(&self, uid: &str) {
        let _ = uid;
    }

    /// A pod is gone: nobody asks it any more.
    pub fn forget(&self, uid: &str) {
        let _ = uid;
    }
}
