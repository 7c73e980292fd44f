//! [`ContainerGc`]: the thin shell around [`select`](super::select::select), with its loop: a round at once, then on a timer and on
//! request. One round at a time: containers, then sandboxes, then logs, each from a new list. Failures are
//! reported, and do not end the round.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::lock::RwLock;
use cri_api::{Container, ContainerState, Kind, RuntimeService};
use image_manager::gc::{ReclaimContainers, Turns};
use image_manager::{EventRecorder, EventRef, EventType, ObjectRef, WallClock};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::logs::{LogDirectories, LogInventory, link_name};
use super::plan::ContainerPlan;
use super::plan::{ContainerGcError, ContainerGcReport};
use super::policy::ContainerGcPolicy;
use super::policy::{NoPodSource, PodStates};
use super::select::{GcInventory, GcScope, select, select_containers, select_logs, select_sandboxes};
use crate::labels::{CONTAINER_NAME, ContainerInfo, POD_NAME, POD_NAMESPACE};

/// The least time that a container gets to end.
const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// Options of container collection.
#[derive(Clone)]
pub struct ContainerGcOptions {
    /// Limits of what is kept.
    pub policy: ContainerGcPolicy,
    /// States of the node's pods.
    pub pods: Arc<dyn PodStates>,
    /// Directories of logs; `None` keeps all logs.
    pub logs: Option<LogDirectories>,
    /// Interval between two rounds.
    pub interval: Duration,
    /// The time of day.
    pub wall_clock: WallClock,
    /// Object of node events.
    pub node: ObjectRef,
}

impl ContainerGcOptions {
    /// Returns the kubelet's defaults, without a source of pods and without logs.
    #[must_use]
    pub fn new(wall_clock: WallClock) -> Self {
        Self {
            policy: ContainerGcPolicy::default(),
            pods: Arc::new(NoPodSource),
            logs: None,
            interval: Duration::from_secs(60),
            wall_clock,
            node: ObjectRef::default(),
        }
    }
}

/// Collects containers, sandboxes and their logs.
pub struct ContainerGc {
    runtime: Arc<dyn RuntimeService>,
    events: Arc<dyn EventRecorder>,
    pub(super) options: ContainerGcOptions,
    /// Guards the policy, which may change.
    policy: RwLock<ContainerGcPolicy>,
    /// Held for a whole round: rounds do not overlap. How many failed in a row.
    failures: Mutex<u32>,
    pub(super) nudge: Notify,
}

impl ContainerGc {
    /// Creates a collector for this runtime.
    #[must_use]
    pub fn new(runtime: Arc<dyn RuntimeService>, events: Arc<dyn EventRecorder>, options: ContainerGcOptions) -> Self {
        let policy = RwLock::new(options.policy);
        Self { runtime, events, options, policy, failures: Mutex::new(0), nudge: Notify::new() }
    }

    /// Goes by another policy from the next round on.
    pub fn set_policy(&self, policy: ContainerGcPolicy) {
        *self.policy.write() = policy;
    }

    fn policy(&self) -> ContainerGcPolicy {
        *self.policy.read()
    }

    /// Asks for a round soon, as when a pod has ended.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Computes what a round would remove, and the reason for everything that stays. Removes nothing.
    ///
    /// # Errors
    /// The runtime's lists, or the directories of the logs.
    pub async fn plan(&self) -> Result<ContainerPlan, ContainerGcError> {
        let mut inventory = self.list().await?;
        inventory.logs = self.scan().await?;
        let now = (self.options.wall_clock)();
        Ok(select(&inventory, &self.policy(), &*self.options.pods, GcScope::Policy, now))
    }

    /// Runs a round. Failures are in the report.
    pub async fn collect(&self) -> ContainerGcReport {
        self.round(GcScope::Policy).await
    }

    /// Runs a round, with a warning event if it is not the first one in a row that failed. The kubelet warns from the
    /// first one on, also while a runtime restarts.
    pub(super) async fn collect_with_warning(&self, scope: GcScope) -> ContainerGcReport {
        let report = self.round(scope).await;
        let mut failures = self.failures.lock().await;
        match report.failure() {
            None => {
                *failures = 0;
                if !report.is_empty() {
                    let (containers, sandboxes) = (report.containers.len(), report.sandboxes.len());
                    let directories = report.log_directories.len();
                    tracing::info!(containers, sandboxes, directories, "container garbage collection removed");
                }
            }
            Some(text) => {
                *failures += 1;
                if *failures > 1 {
                    self.record_warning("ContainerGCFailed", &text);
                } else {
                    tracing::warn!(error = %text, "container garbage collection failed once");
                }
            }
        }
        report
    }

    async fn round(&self, scope: GcScope) -> ContainerGcReport {
        self.run_round(scope).instrument(tracing::trace_span!("Containers/GarbageCollect")).await
    }

    async fn run_round(&self, scope: GcScope) -> ContainerGcReport {
        // Rounds take turns.
        let _turn = self.failures.lock().await;
        let mut report = ContainerGcReport::default();
        if let Err(error) = self.collect_containers(scope, &mut report).await {
            report.errors.push(error);
        }
        if let Err(error) = self.collect_sandboxes(scope, &mut report).await {
            report.errors.push(error);
        }
        if let Err(error) = self.collect_logs(&mut report).await {
            report.errors.push(error);
        }
        report
    }

    async fn collect_containers(&self, scope: GcScope, report: &mut ContainerGcReport) -> Result<(), ContainerGcError> {
        let inventory = self.list().await?;
        let now = (self.options.wall_clock)();
        let rows = select_containers(&inventory, &self.policy(), &*self.options.pods, scope, now);
        for row in rows.into_iter().filter(|row| row.verdict.removes()) {
            let container = &inventory.containers[row.index];
            tracing::debug!(id = row.id, pod = row.pod, container = row.name, reason = %row.verdict, "removing container");
            match self.remove_container(container, report).await {
                Ok(()) => report.containers.push(row),
                Err(error) => report.errors.push(error),
            }
        }
        Ok(())
    }

    async fn collect_sandboxes(&self, scope: GcScope, report: &mut ContainerGcReport) -> Result<(), ContainerGcError> {
        // List again: containers were removed, could not be removed, or were created.
        let GcInventory { containers, sandboxes, .. } = self.list().await?;
        let rows = select_sandboxes(&sandboxes, containers.iter(), &*self.options.pods, scope);
        for row in rows.into_iter().filter(|row| row.verdict.removes()) {
            tracing::debug!(id = row.id, pod = row.pod, reason = %row.verdict, "removing sandbox");
            match self.remove_sandbox(&row.id).await {
                Ok(()) => report.sandboxes.push(row),
                Err(error) => report.errors.push(error),
            }
        }
        Ok(())
    }

    async fn collect_logs(&self, report: &mut ContainerGcReport) -> Result<(), ContainerGcError> {
        let Some(logs) = &self.options.logs else { return Ok(()) };
        // Scan first: logs that are made after the scan are not examined.
        let found = self.scan().await?;
        let containers = self.containers().await?;
        let (directories, links) = select_logs(&found, &containers, &*self.options.pods);
        for row in directories.into_iter().filter(|row| row.verdict.removes()) {
            let (logs, name) = (logs.clone(), row.id.clone());
            match self.on_disk("remove log directory", &row.id, move || logs.remove_directory(&name)).await {
                Ok(()) => report.log_directories.push(row),
                Err(error) => report.errors.push(error),
            }
        }
        for row in links.into_iter().filter(|row| row.verdict.removes()) {
            let (logs, name) = (logs.clone(), row.id.clone());
            match self.on_disk("remove link", &row.id, move || logs.remove_link(&name)).await {
                Ok(()) => report.log_links.push(row),
                Err(error) => report.errors.push(error),
            }
        }
        Ok(())
    }

    async fn remove_container(
        &self,
        container: &Container,
        report: &mut ContainerGcReport,
    ) -> Result<(), ContainerGcError> {
        let failed = |what| move |source| ContainerGcError::Runtime { what, id: container.id.clone(), source };
        if container.state == ContainerState::Unknown {
            // It may run: it gets the chance to end in order.
            tracing::info!(id = container.id, "Container is in unknown state, try killing it before removal");
            self.runtime.stop_container(&container.id, grace(container)).await.map_err(failed("stop container"))?;
        }
        let log_path = match self.runtime.container_status(&container.id, false).await {
            Ok(status) => PathBuf::from(status.log_path),
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) => return Err(failed("ask for the log of container")(error)),
        };
        self.runtime.remove_container(&container.id).await.map_err(failed("remove container"))?;
        if let Some(logs) = self.options.logs.clone() {
            let label = |key: &str| container.labels.get(key).map(String::as_str).unwrap_or_default();
            let (pod, name) = (label(POD_NAME), label(CONTAINER_NAME));
            let link = link_name(pod, label(POD_NAMESPACE), name, &container.id);
            let removed = self.on_disk("remove log of container", &container.id, move || {
                let removed = logs.remove_log(&log_path)?;
                logs.remove_link(&link)?;
                Ok(removed)
            });
            match removed.await {
                Ok(removed) => report.log_files += removed,
                // The container was removed: its log is removed with the pod's directory at the latest.
                Err(error) => report.errors.push(error),
            }
        }
        Ok(())
    }

    /// Stops and removes a sandbox. The process that ended the pod should have stopped it, and may have been ended
    /// itself before.
    async fn remove_sandbox(&self, id: &str) -> Result<(), ContainerGcError> {
        let failed = |what| move |source| ContainerGcError::Runtime { what, id: id.to_owned(), source };
        self.runtime.stop_pod_sandbox(id).await.map_err(failed("stop sandbox"))?;
        self.runtime.remove_pod_sandbox(id).await.map_err(failed("remove sandbox"))
    }

    /// Sandboxes before containers: a container that is created in between then has no sandbox in the list, and one
    /// that is in a listed sandbox is seen.
    async fn list(&self) -> Result<GcInventory, ContainerGcError> {
        let sandboxes = self.runtime.list_pod_sandboxes(None).await;
        let sandboxes = sandboxes.map_err(|source| ContainerGcError::List { what: "list sandboxes", source })?;
        Ok(GcInventory { sandboxes, containers: self.containers().await?, logs: LogInventory::default() })
    }

    async fn containers(&self) -> Result<Vec<Container>, ContainerGcError> {
        let list = self.runtime.list_containers(None).await;
        list.map_err(|source| ContainerGcError::List { what: "list containers", source })
    }

    async fn scan(&self) -> Result<LogInventory, ContainerGcError> {
        let Some(logs) = self.options.logs.clone() else { return Ok(LogInventory::default()) };
        let name = logs.pods.display().to_string();
        self.on_disk("read log directory", &name, move || logs.scan()).await
    }

    /// Work that waits for a disk, off the async threads.
    async fn on_disk<T: Send + 'static>(
        &self,
        what: &'static str,
        name: &str,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, ContainerGcError> {
        let result = base::blocking(work).await.ok_or(ContainerGcError::ShuttingDown)?;
        result.map_err(|source| ContainerGcError::Logs { what, name: name.to_owned(), source })
    }

    fn record_warning(&self, reason: &'static str, message: &str) {
        let kind = EventType::Warning;
        self.events.record(EventRef { object: &self.options.node, kind, reason, message });
    }
}

/// Returns the grace period of a container: that of its pod, but at least the minimum.
fn grace(container: &Container) -> Duration {
    let info = ContainerInfo::read(&container.labels, &container.annotations);
    let said = info.deletion_grace_period.or(info.termination_grace_period);
    said.and_then(|seconds| u64::try_from(seconds).ok()).map_or(MINIMUM_GRACE, Duration::from_secs).max(MINIMUM_GRACE)
}

#[async_trait]
impl ReclaimContainers for ContainerGc {
    async fn delete_all_unused_containers(&self) -> Result<(), String> {
        self.collect_with_warning(GcScope::Pressure).await.failure().map_or(Ok(()), Err)
    }
}

impl ContainerGc {
    /// Runs the loop until `stop`. A round that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut turns = Turns::new(self.options.interval, Some(&self.nudge), stop);
        while turns.next().await {
            self.collect_with_warning(GcScope::Policy).await;
        }
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
