//! [`Metrics`]: the metrics of the image manager. The kubelet's metrics keep their names, labels and buckets; all others
//! begin with `imagelet_`. Counting takes an index and an atomic addition, cannot fail and makes no text.
//!
//! It reads no clock, opens no socket and writes no format: the owner of a registry calls [`Metrics::register`].
//! Called by the manager, the puller, the records and [`Instrumented`](crate::Instrumented).

pub(crate) mod series;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::{Cause, PullPolicy};
use series::{LabelPairs, Series};

/// Seconds that a pull takes: bounds of the kubelet.
const PULL_BUCKETS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
];

/// Seconds that a pull waits for its turn.
const WAIT_BUCKETS: [f64; 14] =
    [0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Classes of image size, by the bytes that an image must exceed to be in them; the first takes what has no size.
const SIZES: [(u64, &str); 13] = [
    (0, "N/A"),
    (0, "0-10MB"),
    (10 * MIB, "10MB-100MB"),
    (100 * MIB, "100MB-500MB"),
    (500 * MIB, "500MB-1GB"),
    (GIB, "1GB-5GB"),
    (5 * GIB, "5GB-10GB"),
    (10 * GIB, "10GB-20GB"),
    (20 * GIB, "20GB-30GB"),
    (30 * GIB, "30GB-40GB"),
    (40 * GIB, "40GB-60GB"),
    (60 * GIB, "60GB-100GB"),
    (100 * GIB, "GT100GB"),
];

/// Answer to the question whether a present image must be pulled all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MustPullResult {
    /// No: the policy wants no verification of this image.
    CredentialPolicyAllowed,
    /// No: a record says that the pod may have it.
    CredentialRecordFound,
    /// Yes: the registry has to say whether the pod may have it.
    MustAuthenticate,
    /// Yes: the records could not be read.
    Error,
}

impl MustPullResult {
    const ALL: [(Self, &str); 4] = [
        (Self::CredentialPolicyAllowed, "credentialPolicyAllowed"),
        (Self::CredentialRecordFound, "credentialRecordFound"),
        (Self::MustAuthenticate, "mustAuthenticate"),
        (Self::Error, "error"),
    ];
}

/// Kinds of records in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Pull intents.
    Intents,
    /// Pulled records.
    Records,
}

/// A call of an image service or of a runtime, as the kubelet names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `ListImages`: images by a filter.
    ListImages,
    /// `ImageStatus` of one image: present or absent.
    ImageStatus,
    /// `PullImage`: an attempt to pull with one credential.
    PullImage,
    /// `RemoveImage`: an image with all its names.
    RemoveImage,
    /// `ImageFsInfo`: the file systems of images and containers.
    ImageFsInfo,
    /// `Version`: name and version of the runtime.
    Version,
    /// `Status` of the runtime: its conditions.
    RuntimeStatus,
    /// `RunPodSandbox`: a sandbox is created and started.
    RunPodSandbox,
    /// `StopPodSandbox`: a sandbox and its containers are stopped.
    StopPodSandbox,
    /// `RemovePodSandbox`: a sandbox and its containers are removed.
    RemovePodSandbox,
    /// `PodSandboxStatus` of one sandbox.
    PodSandboxStatus,
    /// `ListPodSandbox`: sandboxes by a filter.
    ListPodSandbox,
    /// `CreateContainer` in a sandbox.
    CreateContainer,
    /// `StartContainer`: a created container is started.
    StartContainer,
    /// `StopContainer`, which waits for the grace period.
    StopContainer,
    /// `RemoveContainer` by id.
    RemoveContainer,
    /// `ContainerStatus` of one container.
    ContainerStatus,
    /// `ListContainers` by a filter.
    ListContainers,
    /// `ExecSync`: a command in a container, with its output; exec probes and hooks.
    ExecSync,
    /// `UpdateContainerResources` of a running container.
    UpdateContainer,
    /// `UpdatePodSandboxResources` of a running sandbox.
    UpdatePodSandbox,
    /// `ReopenContainerLog`, after the rotation of a log.
    ReopenContainerLog,
    /// `Exec`: the address of a stream to a command in a container.
    Exec,
    /// `Attach`: the address of a stream to a running container.
    Attach,
    /// `PortForward`: the address of a stream to a port of a sandbox.
    PortForward,
    /// `ContainerStats` of one container.
    ContainerStats,
    /// `ListContainerStats` by a filter.
    ListContainerStats,
    /// `PodSandboxStats` of one sandbox.
    PodSandboxStats,
    /// `ListPodSandboxStats` by a filter.
    ListPodSandboxStats,
    /// `GetContainerEvents`: the stream of container events.
    GetContainerEvents,
    /// `UpdateRuntimeConfig`: the pod CIDR of the node.
    UpdateRuntimeConfig,
    /// `RuntimeConfig`: the cgroup driver of the runtime.
    RuntimeConfig,
}

impl Operation {
    const ALL: [(Self, &str); 32] = [
        (Self::ListImages, "list_images"),
        (Self::ImageStatus, "image_status"),
        (Self::PullImage, "pull_image"),
        (Self::RemoveImage, "remove_image"),
        (Self::ImageFsInfo, "image_fs_info"),
        (Self::Version, "version"),
        (Self::RuntimeStatus, "status"),
        (Self::RunPodSandbox, "run_podsandbox"),
        (Self::StopPodSandbox, "stop_podsandbox"),
        (Self::RemovePodSandbox, "remove_podsandbox"),
        (Self::PodSandboxStatus, "podsandbox_status"),
        (Self::ListPodSandbox, "list_podsandbox"),
        (Self::CreateContainer, "create_container"),
        (Self::StartContainer, "start_container"),
        (Self::StopContainer, "stop_container"),
        (Self::RemoveContainer, "remove_container"),
        (Self::ContainerStatus, "container_status"),
        (Self::ListContainers, "list_containers"),
        (Self::ExecSync, "exec_sync"),
        (Self::UpdateContainer, "update_container"),
        (Self::UpdatePodSandbox, "update_podsandbox_resources"),
        (Self::ReopenContainerLog, "reopen_container_log"),
        (Self::Exec, "exec"),
        (Self::Attach, "attach"),
        (Self::PortForward, "port_forward"),
        (Self::ContainerStats, "container_stats"),
        (Self::ListContainerStats, "list_container_stats"),
        (Self::PodSandboxStats, "podsandbox_stats"),
        (Self::ListPodSandboxStats, "list_podsandbox_stats"),
        (Self::GetContainerEvents, "get_container_events"),
        (Self::UpdateRuntimeConfig, "update_runtime_config"),
        (Self::RuntimeConfig, "runtime_config"),
    ];
}

/// Everything that is counted. Cheap to share; every method may be called from any thread.
#[derive(Debug)]
pub struct Metrics {
    pull_duration: Series<Histogram, { SIZES.len() }>,
    ensure_requests: Series<Counter, 27, 3>,
    disk_intents: Gauge,
    disk_records: Gauge,
    memory_intents: Gauge,
    memory_records: Gauge,
    must_pull_checks: Series<Counter, { MustPullResult::ALL.len() }>,
    operations: Series<Counter, { Operation::ALL.len() }>,
    operation_duration: Series<Histogram, { Operation::ALL.len() }>,
    operation_errors: Series<Counter, { Operation::ALL.len() }>,
    queue_length: Gauge,
    queue_wait: Histogram,
    coalesced: Counter,
    in_flight: Gauge,
    pulled_bytes: Counter,
    failures: Series<Counter, { Cause::ALL.len() }>,
    throttled: Counter,
    backoff_entries: Gauge,
}

impl Metrics {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            pull_duration: Series::new(size_labels, || Histogram::new(PULL_BUCKETS)),
            ensure_requests: Series::new(ensure_labels, Counter::default),
            disk_intents: Gauge::default(),
            disk_records: Gauge::default(),
            memory_intents: Gauge::default(),
            memory_records: Gauge::default(),
            must_pull_checks: Series::new(must_pull_labels, Counter::default),
            operations: Series::new(operation_labels, Counter::default),
            operation_duration: Series::new(operation_labels, || Histogram::new(exponential_buckets(0.005, 2.5, 14))),
            operation_errors: Series::new(operation_labels, Counter::default),
            queue_length: Gauge::default(),
            queue_wait: Histogram::new(WAIT_BUCKETS),
            coalesced: Counter::default(),
            in_flight: Gauge::default(),
            pulled_bytes: Counter::default(),
            failures: Series::new(cause_labels, Counter::default),
            throttled: Counter::default(),
            backoff_entries: Gauge::default(),
        })
    }

    /// Gives every metric its name. The registry appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register(
            "kubelet_image_pull_duration_seconds",
            "Time from the start of a successful pull, waiting included, by the size of the image",
            self.pull_duration.clone(),
        );
        r.register(
            "kubelet_image_manager_ensure_image_requests",
            "Requests for an image, by pull policy, whether the image was present, and whether it had to be pulled",
            self.ensure_requests.clone(),
        );
        r.register("kubelet_imagemanager_ondisk_pullintents", "Pull intents on disk", self.disk_intents.clone());
        r.register("kubelet_imagemanager_ondisk_pulledrecords", "Pulled records on disk", self.disk_records.clone());
        r.register(
            "kubelet_imagemanager_inmemory_pullintents_usage_percent",
            "How full the memory for pull intents is, in percent",
            self.memory_intents.clone(),
        );
        r.register(
            "kubelet_imagemanager_inmemory_pulledrecords_usage_percent",
            "How full the memory for pulled records is, in percent",
            self.memory_records.clone(),
        );
        r.register(
            "kubelet_imagemanager_image_mustpull_checks",
            "Checks whether a present image must be pulled to verify credentials, by result",
            self.must_pull_checks.clone(),
        );
        r.register(
            "kubelet_runtime_operations",
            "Calls of the image service and of the runtime, by operation",
            self.operations.clone(),
        );
        r.register(
            "kubelet_runtime_operations_duration_seconds",
            "Time that calls of the image service and of the runtime took, by operation",
            self.operation_duration.clone(),
        );
        r.register(
            "kubelet_runtime_operations_errors",
            "Calls of the image service and of the runtime that failed or were given up, by operation",
            self.operation_errors.clone(),
        );
        r.register("imagelet_pull_queue_length", "Pulls that wait for their turn", self.queue_length.clone());
        r.register(
            "imagelet_pull_queue_wait_seconds",
            "Time that pulls waited for their turn",
            self.queue_wait.clone(),
        );
        r.register("imagelet_pulls_coalesced", "Requests that joined a pull of another", self.coalesced.clone());
        r.register("imagelet_pulls_in_flight", "Pulls that run", self.in_flight.clone());
        r.register(
            "imagelet_pulled_bytes",
            "Compressed bytes of layers that came from registries, as far as the image service tells",
            self.pulled_bytes.clone(),
        );
        r.register("imagelet_pull_failures", "Failed pulls, by cause", self.failures.clone());
        r.register(
            "imagelet_pulls_throttled",
            "Pulls that registryPullQPS refused or made wait",
            self.throttled.clone(),
        );
        r.register("imagelet_backoff_entries", "Images of pods that are in back-off", self.backoff_entries.clone());
    }

    /// A request ended, however it ended. `None`: it ended before that was known.
    pub fn ensure_request(&self, policy: PullPolicy, present: Option<bool>, pull_required: Option<bool>) {
        let policy = match policy {
            PullPolicy::Always => 0,
            PullPolicy::IfNotPresent => 1,
            PullPolicy::Never => 2,
        };
        self.ensure_requests.at((policy * 3 + three(present)) * 3 + three(pull_required)).inc();
    }

    /// A pull succeeded; `took` has the waiting in it. Sizes that are not known count apart.
    pub fn pull_duration(&self, size: Option<u64>, took: Duration) {
        self.pull_duration.at(size_class(size.unwrap_or(0))).observe(took.as_secs_f64());
    }

    /// So many more, or fewer, pulls wait for their turn.
    pub fn queue_length(&self, change: i64) {
        self.queue_length.inc_by(change);
    }

    /// A pull got its turn after so long.
    pub fn queue_waited(&self, waited: Duration) {
        self.queue_wait.observe(waited.as_secs_f64());
    }

    /// A request joined a pull that was there.
    pub fn coalesced(&self) {
        self.coalesced.inc();
    }

    /// So many more, or fewer, pulls run.
    pub fn in_flight(&self, change: i64) {
        self.in_flight.inc_by(change);
    }

    /// Counts received bytes.
    pub fn pulled_bytes(&self, bytes: u64) {
        self.pulled_bytes.inc_by(bytes);
    }

    /// A pull failed.
    pub fn failed(&self, cause: Cause) {
        // The order of `Cause::ALL`, which a test holds to be that of the variants.
        self.failures.at(cause as usize).inc();
    }

    /// A pull had no token.
    pub fn throttled(&self) {
        self.throttled.inc();
    }

    /// So many images of pods are in back-off.
    pub fn backoff_entries(&self, entries: usize) {
        self.backoff_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// Changes the number of records on disk.
    pub fn on_disk(&self, intents: i64, records: i64) {
        self.disk_intents.inc_by(intents);
        self.disk_records.inc_by(records);
    }

    /// So full is the memory for records.
    pub fn in_memory_usage(&self, which: RecordKind, percent: i64) {
        let gauge = match which {
            RecordKind::Intents => &self.memory_intents,
            RecordKind::Records => &self.memory_records,
        };
        gauge.set(percent);
    }

    /// Counts a check whether a present image must be pulled all the same.
    pub fn must_pull_check(&self, result: MustPullResult) {
        self.must_pull_checks.at(result as usize).inc();
    }

    /// Counts a call of the image service or of the runtime that ended after `took`.
    pub fn operation(&self, operation: Operation, took: Duration, ok: bool) {
        let index = operation as usize;
        self.operations.at(index).inc();
        self.operation_duration.at(index).observe(took.as_secs_f64());
        if !ok {
            self.operation_errors.at(index).inc();
        }
    }
}

/// Index of what may be unknown.
fn three(known: Option<bool>) -> usize {
    match known {
        Some(true) => 0,
        Some(false) => 1,
        None => 2,
    }
}

fn ensure_labels(index: usize) -> LabelPairs<3> {
    const POLICIES: [&str; 3] = ["always", "ifnotpresent", "never"];
    const THREE: [&str; 3] = ["true", "false", "unknown"];
    [
        ("pull_policy", POLICIES[index / 9]),
        ("present_locally", THREE[index / 3 % 3]),
        ("pull_required", THREE[index % 3]),
    ]
}

/// The last class whose bound the size exceeds; what has no size is in the first.
fn size_class(size: u64) -> usize {
    SIZES.iter().rposition(|&(bound, _)| size > bound).unwrap_or(0)
}

fn size_labels(index: usize) -> LabelPairs<1> {
    [("image_size_in_bytes", SIZES[index].1)]
}

fn must_pull_labels(index: usize) -> LabelPairs<1> {
    [("result", MustPullResult::ALL[index].1)]
}

fn operation_labels(index: usize) -> LabelPairs<1> {
    [("operation_type", Operation::ALL[index].1)]
}

fn cause_labels(index: usize) -> LabelPairs<1> {
    [("cause", Cause::ALL[index].as_str())]
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
