//! [`WorkerMetrics`]: counts and times of the sync loop, under the kubelet's names, labels and buckets. Reads no clock
//! and opens no socket: the owner of a registry calls [`WorkerMetrics::register`].

use std::sync::Arc;
use std::time::Duration;

use cri_api::ContainerState;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::runtime_pods::RuntimePods;

/// Seconds of short things.
const SHORT: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds that a pod takes to start.
const START: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

type Label = [(&'static str, &'static str); 1];

/// Kind of a worker's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerOperation {
    /// The first sync of a pod.
    Create,
    /// The first one after its manifest changed.
    Update,
    /// Any other one.
    Sync,
    /// The end of the pod.
    Kill,
}

impl WorkerOperation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Sync => "sync",
            Self::Kill => "kill",
        }
    }
}

/// Pods that have a worker, in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkingPods {
    /// Pods that should be here.
    pub(super) desired: i64,
    /// Pods that no source wants any more.
    pub(super) orphan: i64,
    /// Pods that were found in the runtime and are otherwise unknown.
    pub(super) runtime_only: i64,
}

/// Everything that the sync loop counts.
#[derive(Debug)]
pub struct WorkerMetrics {
    relist_duration: Histogram,
    relist_interval: Histogram,
    last_seen: Gauge<f64, std::sync::atomic::AtomicU64>,
    discarded: Gauge,
    work: Family<Label, Histogram, fn() -> Histogram>,
    worker_start: Histogram,
    pod_start: Histogram,
    pod_start_sli: Histogram,
    pod_start_total: Histogram,
    running_pods: Gauge,
    running_containers: Family<Label, Gauge>,
    desired: Family<Label, Gauge>,
    active: Family<Label, Gauge>,
    working: Family<[(&'static str, &'static str); 3], Gauge>,
    orphaned: Counter,
    restarted: Family<Label, Counter>,
}

impl WorkerMetrics {
    /// Creates the metrics, all zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let short: fn() -> Histogram = || Histogram::new(SHORT);
        Arc::new(Self {
            relist_duration: short(),
            relist_interval: short(),
            last_seen: Gauge::default(),
            discarded: Gauge::default(),
            work: Family::new_with_constructor(short),
            worker_start: short(),
            pod_start: Histogram::new(START),
            pod_start_sli: Histogram::new(START),
            pod_start_total: Histogram::new(START),
            running_pods: Gauge::default(),
            running_containers: Family::default(),
            desired: Family::default(),
            active: Family::default(),
            working: Family::default(),
            orphaned: Counter::default(),
            restarted: Family::default(),
        })
    }

    /// Gives every metric its name. The registry appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        let relist = "kubelet_pleg_relist_duration_seconds";
        r.register(relist, "Time that asking the runtime for all pods took", self.relist_duration.clone());
        let interval = "kubelet_pleg_relist_interval_seconds";
        r.register(interval, "Time between two such questions", self.relist_interval.clone());
        let seen = "kubelet_pleg_last_seen_seconds";
        r.register(seen, "When the runtime was last asked, seconds since the epoch", self.last_seen.clone());
        let discarded = "kubelet_pleg_discard_events";
        r.register(discarded, "Changes of the runtime that were dropped; imagelet drops none", self.discarded.clone());
        let work = "kubelet_pod_worker_duration_seconds";
        r.register(work, "Time that one piece of work on a pod took, by operation", self.work.clone());
        let start = "kubelet_pod_worker_start_duration_seconds";
        r.register(start, "Time from the first sight of a pod to the start of work on it", self.worker_start.clone());
        let pod_start = "kubelet_pod_start_duration_seconds";
        r.register(
            pod_start,
            "Time from the first report of a pod by its source until all its containers run",
            self.pod_start.clone(),
        );
        let sli = "kubelet_pod_start_sli_duration_seconds";
        r.register(sli, "The same without pulls of images and init containers", self.pod_start_sli.clone());
        let total = "kubelet_pod_start_total_duration_seconds";
        r.register(total, "The same with both", self.pod_start_total.clone());
        r.register("kubelet_running_pods", "Pods that have a sandbox that is ready", self.running_pods.clone());
        let running = "kubelet_running_containers";
        r.register(running, "Containers, by state", self.running_containers.clone());
        r.register("kubelet_desired_pods", "Pods that should be on this node", self.desired.clone());
        r.register("kubelet_active_pods", "Pods of those that have not ended", self.active.clone());
        let working = "kubelet_working_pods";
        r.register(working, "Pods that have a worker, by its state and by their source", self.working.clone());
        let orphaned = "kubelet_orphaned_runtime_pods";
        r.register(orphaned, "Pods in the runtime that no source has reported", self.orphaned.clone());
        let restarted = "kubelet_restarted_pods";
        r.register(restarted, "Pods that were deleted and added again under the same uid", self.restarted.clone());
    }

    pub(super) fn relisted(&self, took: Duration, since: Option<Duration>, at: jiff::Timestamp) {
        self.relist_duration.observe(took.as_secs_f64());
        if let Some(since) = since {
            self.relist_interval.observe(since.as_secs_f64());
        }
        self.last_seen.set(at.as_duration().as_secs_f64());
    }

    pub(super) fn worked(&self, work: WorkerOperation, took: Duration) {
        self.work.get_or_create(&[("operation_type", work.as_str())]).observe(took.as_secs_f64());
    }

    pub(super) fn worker_started(&self, after: Duration) {
        self.worker_start.observe(after.as_secs_f64());
    }

    /// Records that all containers of a pod run, `after` the pod was added; `apart` is the part of that time in which
    /// images were pulled and init containers ran.
    pub(super) fn pod_started(&self, after: Duration, apart: Duration) {
        self.pod_start.observe(after.as_secs_f64());
        self.pod_start_total.observe(after.as_secs_f64());
        self.pod_start_sli.observe(after.saturating_sub(apart).as_secs_f64());
    }

    pub(super) fn orphan(&self) {
        self.orphaned.inc();
    }

    pub(super) fn restarted(&self) {
        self.restarted.get_or_create(&[("static", "true")]).inc();
    }

    pub(super) fn runtime(&self, pods: &RuntimePods) {
        let ready = pods.pods.values().filter(|pod| pod.sandboxes.values().any(|ready| *ready)).count();
        self.running_pods.set(i64::try_from(ready).unwrap_or(i64::MAX));
        let states = [
            ("created", ContainerState::Created),
            ("running", ContainerState::Running),
            ("exited", ContainerState::Exited),
            ("unknown", ContainerState::Unknown),
        ];
        for (name, state) in states {
            let containers = pods.pods.values().flat_map(|pod| pod.containers.values());
            let count = containers.filter(|seen| **seen == state).count();
            let gauge = self.running_containers.get_or_create(&[("container_state", name)]).clone();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Sets the counts of pods: `lifecycle` is `sync`, `terminating` or `terminated`.
    pub(super) fn pods(&self, desired: usize, active: usize, working: [(&'static str, WorkingPods); 3]) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.desired.get_or_create(&[("static", "true")]).set(number(desired));
        self.active.get_or_create(&[("static", "true")]).set(number(active));
        for (lifecycle, WorkingPods { desired, orphan, runtime_only }) in working {
            for (config, count) in [("desired", desired), ("orphan", orphan), ("runtime_only", runtime_only)] {
                let labels = [("config", config), ("lifecycle", lifecycle), ("static", "true")];
                self.working.get_or_create(&labels).set(count);
            }
        }
    }
}
