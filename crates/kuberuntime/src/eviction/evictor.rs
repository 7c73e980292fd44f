//! [`Evictor`]: measures what pods use of the disk, and ends those that have to go. Called by collection under disk pressure and, for limits
//! of pods, by a loop of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use base::blocking;
use base::lock::Mutex;
use cri_api::RuntimeService;
use image_manager::gc::{EvictPods, EvictionCause};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::disk_use::{ContainerDiskUse, DiskAmount, DiskUse, MeasureError, PodDiskUse, measure};
use super::limits::{exceeded_limit, has_limits};
use super::messages::low_resource;
use super::rank::{Measure, rank};
use crate::config::pod_log_directory_name;
use crate::labels::{CONTAINER_NAME, POD_UID, PodOwner};
use crate::pod::{Pod, VolumeSource, is_in_memory};
use crate::status::PodEnd;
use crate::volumes::Volumes;
use crate::volumes::place::OpenDirectory;
use crate::workers::{PodAgent, WorkerState};

/// Interval of the checks of pods' limits. Only pods with limits are measured.
const LIMITS: Duration = Duration::from_secs(30);
/// Longest wait for an evicted pod before the next one is chosen.
const CLEANUP: Duration = Duration::from_secs(30);
/// Grace period of evicted pods, in seconds.
const GRACE: i64 = 1;

/// The parts that an [`Evictor`] needs.
pub struct EvictorParts {
    /// The runtime, for the disk use of writable layers.
    pub runtime: Arc<dyn RuntimeService>,
    /// The directories of pods, for the disk use of volumes.
    pub volumes: Arc<Volumes>,
    /// Directory of the pods' logs.
    pub pod_logs: String,
    /// The sync loop, once it is made: collection is made before it.
    pub agent: Arc<OnceLock<Arc<PodAgent>>>,
}

/// Ends pods for want of disk.
pub struct Evictor {
    parts: EvictorParts,
    /// Guards the uid of the pod that was evicted last, and when.
    last: Mutex<Option<(String, Instant)>>,
}

impl Evictor {
    /// Evicts nothing until [`Self::run`] or the collection of images asks for it.
    #[must_use]
    pub fn new(parts: EvictorParts) -> Self {
        Self { parts, last: Mutex::default() }
    }

    /// Checks limits of pods until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LIMITS)).await.is_some() {
            self.enforce_limits().await;
        }
    }

    /// Evicts each pod that uses more than its own limits allow.
    pub async fn enforce_limits(&self) {
        for of in self.measured(has_limits).await {
            if let Some(message) = exceeded_limit(&of) {
                self.evict(&of.pod, message);
            }
        }
    }

    /// Returns the disk use of the pods that may be evicted and that `counts` accepts.
    async fn measured(&self, counts: fn(&Pod) -> bool) -> Vec<PodDiskUse> {
        let Some(agent) = self.parts.agent.get() else { return Vec::new() };
        let running = agent.pods().into_iter().filter(|view| view.state == WorkerState::Syncing);
        let pods = running.map(|view| Arc::clone(&view.pod));
        let pods: Vec<Arc<Pod>> = pods.filter(|pod| !super::is_critical(pod) && counts(pod)).collect();
        if pods.is_empty() {
            return Vec::new();
        }
        let layers = match self.parts.runtime.list_container_stats(None).await {
            Ok(stats) => stats,
            Err(error) => {
                tracing::warn!(%error, "the runtime does not tell what containers use of the disk");
                Vec::new()
            }
        };
        let mut written = BTreeMap::<(String, String), DiskAmount>::new();
        for stats in layers {
            let (labels, layer) = (stats.attributes.labels, stats.writable_layer.unwrap_or_default());
            let Some((uid, name)) = labels.get(POD_UID).zip(labels.get(CONTAINER_NAME)) else { continue };
            let amount = DiskAmount {
                bytes: layer.used_bytes.unwrap_or_default(),
                inodes: layer.inodes_used.unwrap_or_default(),
            };
            *written.entry((uid.clone(), name.clone())).or_default() += amount;
        }
        let (volumes, logs) = (Arc::clone(&self.parts.volumes), self.parts.pod_logs.clone());
        let uses =
            blocking(move || pods.into_iter().filter_map(|pod| disk_use(pod, &volumes, &logs, &written)).collect());
        uses.await.unwrap_or_default()
    }

    /// Ends a pod. Returns false if no worker runs it any more.
    fn evict(&self, pod: &Pod, message: String) -> bool {
        let Some(agent) = self.parts.agent.get() else { return false };
        tracing::warn!(pod = pod.title(), message, "evicting a pod");
        agent.evict(&pod.metadata.uid, PodEnd { reason: "Evicted".to_owned(), message }, GRACE)
    }

    /// Returns true while the pod that was evicted last has not ended, up to the longest wait.
    fn is_waiting(&self) -> bool {
        let mut last = self.last.lock();
        let waits = last.as_ref().is_some_and(|(uid, since)| {
            let views = self.parts.agent.get().map(|agent| agent.pods()).unwrap_or_default();
            let ended = |state| state == WorkerState::Terminated;
            let runs = views.iter().any(|view| view.pod.metadata.uid == *uid && !ended(view.state));
            runs && since.elapsed() < CLEANUP
        });
        if !waits {
            *last = None;
        }
        waits
    }
}

#[async_trait]
impl EvictPods for Evictor {
    async fn evict_one(&self, cause: &EvictionCause) -> bool {
        if self.is_waiting() {
            return true;
        }
        let mut pods = self.measured(|_| true).await;
        rank(&mut pods, Measure::from(cause));
        for of in &pods {
            if self.evict(&of.pod, low_resource(cause, of)) {
                *self.last.lock() = Some((of.pod.metadata.uid.clone(), Instant::now()));
                return true;
            }
        }
        false
    }
}

/// Measures a pod's logs and volumes; `None` if this process is too short of descriptors or memory to do it now. Blocks.
fn disk_use(
    pod: Arc<Pod>,
    volumes: &Volumes,
    logs: &str,
    written: &BTreeMap<(String, String), DiskAmount>,
) -> Option<PodDiskUse> {
    let mut containers = BTreeMap::new();
    for (_, container) in pod.all_containers() {
        let key = (pod.metadata.uid.clone(), container.name.clone());
        let usage = ContainerDiskUse {
            writable_layer: written.get(&key).copied().unwrap_or_default(),
            logs: tree_use(&pod, "logs of container", &container.name, open_logs(logs, &pod, &container.name))?,
        };
        containers.insert(container.name.clone(), usage);
    }
    let mut on_disk = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let is_on_disk = match VolumeSource::of(volume) {
            VolumeSource::EmptyDir(directory) => !is_in_memory(directory),
            VolumeSource::ConfigMap(_) => true,
            _ => false,
        };
        if !is_on_disk {
            continue;
        }
        let Some(directory) = volumes.open_directory(&pod.metadata.uid, volume) else { continue };
        on_disk.insert(volume.name.clone(), tree_use(&pod, "volume", &volume.name, directory)?);
    }
    Some(PodDiskUse { pod, containers, volumes: on_disk })
}

/// Opens the directory of a container's logs.
fn open_logs(logs: &str, pod: &Pod, container: &str) -> io::Result<OpenDirectory> {
    OpenDirectory::open(Path::new(logs))?.child(&pod_log_directory_name(&PodOwner::of(pod)))?.child(container)
}

/// Measures one tree of a pod; `None` if it cannot be done now.
fn tree_use(pod: &Pod, kind: &str, name: &str, directory: io::Result<OpenDirectory>) -> Option<DiskUse> {
    match measure(directory) {
        Ok(amount) => Some(DiskUse::Measured(amount)),
        Err(MeasureError::Shortage(error)) => {
            tracing::warn!(pod = pod.title(), %error, "cannot measure the {kind} {name} now");
            None
        }
        Err(MeasureError::Tree(error)) => {
            tracing::warn!(pod = pod.title(), %error, "cannot measure the {kind} {name}, which counts as over its limit");
            Some(DiskUse::Unmeasurable(format!("{kind} \"{name}\": {error}")))
        }
    }
}
