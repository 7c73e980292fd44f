//! [`InstrumentedRuntime`]: a runtime whose calls are counted and timed, under the kubelet's names for them. It changes no
//! call and no answer, and decides nothing. The binary puts it around the runtime that pods run on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::instrumented::watched;
use crate::{Clock, Metrics, Operation};
use async_trait::async_trait;
use cri_api::{
    AttachRequest, Container, ContainerConfig, ContainerEvents, ContainerFilter, ContainerStats, ContainerStatsFilter,
    ContainerStatus, ExecRequest, ExecSyncOutput, LinuxContainerResources, PodSandbox, PodSandboxConfig,
    PodSandboxFilter, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatus, Result, RuntimeConfig, RuntimeService,
    RuntimeStatus, VersionInfo,
};

/// A runtime that is watched.
pub struct InstrumentedRuntime {
    runtime: Arc<dyn RuntimeService>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl InstrumentedRuntime {
    /// Counts calls of `runtime`.
    #[must_use]
    pub fn new(runtime: Arc<dyn RuntimeService>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { runtime, metrics, clock }
    }

    async fn watched<T>(&self, operation: Operation, call: impl Future<Output = Result<T>>) -> Result<T> {
        watched(&self.metrics, &self.clock, operation, call).await
    }
}

#[async_trait]
impl RuntimeService for InstrumentedRuntime {
    async fn version(&self) -> Result<VersionInfo> {
        self.watched(Operation::Version, self.runtime.version()).await
    }

    async fn status(&self, verbose: bool) -> Result<RuntimeStatus> {
        self.watched(Operation::RuntimeStatus, self.runtime.status(verbose)).await
    }

    async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        self.watched(Operation::RunPodSandbox, self.runtime.run_pod_sandbox(config, runtime_handler)).await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.watched(Operation::StopPodSandbox, self.runtime.stop_pod_sandbox(id)).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.watched(Operation::RemovePodSandbox, self.runtime.remove_pod_sandbox(id)).await
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatus> {
        self.watched(Operation::PodSandboxStatus, self.runtime.pod_sandbox_status(id, verbose)).await
    }

    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
        self.watched(Operation::ListPodSandbox, self.runtime.list_pod_sandboxes(filter)).await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let call = self.runtime.create_container(sandbox_id, config, sandbox_config);
        self.watched(Operation::CreateContainer, call).await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.watched(Operation::StartContainer, self.runtime.start_container(id)).await
    }

    async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        self.watched(Operation::StopContainer, self.runtime.stop_container(id, timeout)).await
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.watched(Operation::RemoveContainer, self.runtime.remove_container(id)).await
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatus> {
        self.watched(Operation::ContainerStatus, self.runtime.container_status(id, verbose)).await
    }

    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>> {
        self.watched(Operation::ListContainers, self.runtime.list_containers(filter)).await
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecSyncOutput> {
        self.watched(Operation::ExecSync, self.runtime.exec_sync(id, command, timeout)).await
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: &LinuxContainerResources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<()> {
        let call = self.runtime.update_container_resources(id, resources, annotations);
        self.watched(Operation::UpdateContainer, call).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: &LinuxContainerResources,
        resources: &LinuxContainerResources,
    ) -> Result<()> {
        let call = self.runtime.update_pod_sandbox_resources(id, overhead, resources);
        self.watched(Operation::UpdatePodSandbox, call).await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.watched(Operation::ReopenContainerLog, self.runtime.reopen_container_log(id)).await
    }

    async fn exec(&self, request: &ExecRequest) -> Result<String> {
        self.watched(Operation::Exec, self.runtime.exec(request)).await
    }

    async fn attach(&self, request: &AttachRequest) -> Result<String> {
        self.watched(Operation::Attach, self.runtime.attach(request)).await
    }

    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        self.watched(Operation::PortForward, self.runtime.port_forward(sandbox_id, ports)).await
    }

    async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        self.watched(Operation::ContainerStats, self.runtime.container_stats(id)).await
    }

    async fn list_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
        self.watched(Operation::ListContainerStats, self.runtime.list_container_stats(filter)).await
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats> {
        self.watched(Operation::PodSandboxStats, self.runtime.pod_sandbox_stats(id)).await
    }

    async fn list_pod_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
        self.watched(Operation::ListPodSandboxStats, self.runtime.list_pod_sandbox_stats(filter)).await
    }

    fn container_events(&self) -> ContainerEvents {
        // A stream has no end to be timed; only the request is counted.
        self.metrics.operation(Operation::GetContainerEvents, Duration::ZERO, true);
        self.runtime.container_events()
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        self.watched(Operation::UpdateRuntimeConfig, self.runtime.update_runtime_config(pod_cidr)).await
    }

    async fn runtime_config(&self) -> Result<RuntimeConfig> {
        self.watched(Operation::RuntimeConfig, self.runtime.runtime_config()).await
    }
}

#[cfg(test)]
mod tests {
    use cri_api::testing::{CallKind, FakeRuntimeService};
    use cri_api::{Error, Kind};
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_and_timed_and_what_fails_or_is_given_up_counts_as_failed() {
        let (fake, metrics) = (FakeRuntimeService::new(), Metrics::new());
        let runtime = InstrumentedRuntime::new(Arc::new(fake.clone()), Arc::clone(&metrics), Arc::new(Instant::now));
        fake.faults().delay(CallKind::ListContainers, Duration::from_secs(2));
        runtime.list_containers(None).await.expect("a list");
        runtime.stop_pod_sandbox("none").await.expect("what is not there is stopped");
        runtime.container_status("none", false).await.expect_err("there is none");
        fake.faults().fail(CallKind::RunPodSandbox, Error::new(Kind::Unavailable, "gone"));
        runtime.run_pod_sandbox(&PodSandboxConfig::default(), "").await.expect_err("it is gone");
        let gate = fake.faults().hold(CallKind::ExecSync);
        tokio::select! {
            _ = runtime.exec_sync("none", &[], Duration::ZERO) => panic!("nobody opens the gate"),
            () = gate.until_arrived(1) => {}
        }
        let (mut registry, mut out) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        text::encode(&mut out, &registry).expect("a string takes everything");
        let counted = |line: &str| out.contains(&format!("kubelet_runtime_operations_{line}\n"));
        for (operation, failed) in [
            ("list_containers", 0),
            ("stop_podsandbox", 0),
            ("container_status", 1),
            ("run_podsandbox", 1),
            ("exec_sync", 1),
        ] {
            assert!(counted(&format!("total{{operation_type=\"{operation}\"}} 1")), "{operation} in {out}");
            let line = format!("errors_total{{operation_type=\"{operation}\"}} 1");
            assert_eq!(counted(&line), failed == 1, "{operation}");
        }
        assert!(counted("duration_seconds_sum{operation_type=\"list_containers\"} 2.0"), "{out}");
    }
}
