//! [`PodMetrics`]: counts and times of the syncs of pods, under the kubelet's names, labels and buckets. Counting
//! cannot fail. Reads no clock and writes no format: the owner of a registry calls [`PodMetrics::register`]. Called by
//! the syncs of pods.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::pod::ContainerKind;

/// Seconds that a sandbox takes: what Prometheus' clients have by default, as in the kubelet.
const SANDBOX_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfContainer {
    container_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    container_type: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHandler {
    runtime_handler: String,
}

/// Everything that is counted. Cheap to share.
#[derive(Debug)]
pub struct PodMetrics {
    started_pods: Counter,
    started_pods_errors: Counter,
    started_containers: Family<OfContainer, Counter>,
    started_containers_errors: Family<OfFailure, Counter>,
    run_sandbox: Family<OfHandler, Histogram>,
    run_sandbox_errors: Family<OfHandler, Counter>,
    volumes_requested: Counter,
    volumes_mounted: Counter,
    volumes_failed: Counter,
}

impl Default for PodMetrics {
    fn default() -> Self {
        Self {
            started_pods: Counter::default(),
            started_pods_errors: Counter::default(),
            started_containers: Family::default(),
            started_containers_errors: Family::default(),
            run_sandbox: Family::new_with_constructor(|| Histogram::new(SANDBOX_BUCKETS)),
            run_sandbox_errors: Family::default(),
            volumes_requested: Counter::default(),
            volumes_mounted: Counter::default(),
            volumes_failed: Counter::default(),
        }
    }
}

impl PodMetrics {
    /// Gives every metric its name. The registry appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("kubelet_started_pods", "Pods that got, or should have got, a sandbox", self.started_pods.clone());
        r.register("kubelet_started_pods_errors", "Pods that got no sandbox", self.started_pods_errors.clone());
        r.register(
            "kubelet_started_containers",
            "Containers that were to be started, by what they are in their pods",
            self.started_containers.clone(),
        );
        r.register(
            "kubelet_started_containers_errors",
            "Containers that were not started, by what they are in their pods, and why",
            self.started_containers_errors.clone(),
        );
        r.register(
            "kubelet_run_podsandbox_duration_seconds",
            "Time that making a sandbox took, by runtime handler",
            self.run_sandbox.clone(),
        );
        r.register(
            "kubelet_run_podsandbox_errors",
            "Sandboxes that could not be made, by runtime handler",
            self.run_sandbox_errors.clone(),
        );
        r.register(
            "kubelet_image_volume_requested",
            "Image volumes that containers were to be started with",
            self.volumes_requested.clone(),
        );
        r.register(
            "kubelet_image_volume_mounted_succeed",
            "Image volumes that containers were started with",
            self.volumes_mounted.clone(),
        );
        r.register(
            "kubelet_image_volume_mounted_errors",
            "Image volumes with which containers could not be started",
            self.volumes_failed.clone(),
        );
    }

    /// Counts the start of a sandbox.
    pub(super) fn pod_starts(&self) {
        self.started_pods.inc();
    }

    /// Records the duration and outcome of a sandbox start.
    pub(super) fn sandbox(&self, handler: &str, took: Duration, ok: bool) {
        let of = OfHandler { runtime_handler: handler.to_owned() };
        self.run_sandbox.get_or_create(&of).observe(took.as_secs_f64());
        if !ok {
            self.run_sandbox_errors.get_or_create(&of).inc();
        }
    }

    /// Counts a pod without a sandbox.
    pub(super) fn pod_failed(&self) {
        self.started_pods_errors.inc();
    }

    /// Counts the start of a container.
    pub(super) fn container_starts(&self, kind: ContainerKind) {
        self.started_containers.get_or_create(&OfContainer { container_type: container_type(kind) }).inc();
    }

    /// Counts a container that was not started; `code` is the reason of its waiting state.
    pub(super) fn container_failed(&self, kind: ContainerKind, code: &str) {
        let of = OfFailure { container_type: container_type(kind), code: code.to_owned() };
        self.started_containers_errors.get_or_create(&of).inc();
    }

    /// Counts the image volumes of a container. `mounted` is whether they were mounted, or `None` after an unrelated failure.
    pub(super) fn volumes(&self, count: u64, mounted: Option<bool>) {
        self.volumes_requested.inc_by(count);
        match mounted {
            Some(true) => drop(self.volumes_mounted.inc_by(count)),
            Some(false) => drop(self.volumes_failed.inc_by(count)),
            None => {}
        }
    }
}

fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init_container",
        ContainerKind::Normal => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}
