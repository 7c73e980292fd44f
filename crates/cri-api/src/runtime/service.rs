//! [`RuntimeService`]: the process border behind which pods run.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::events::Refused;
use super::{
    AttachRequest, Container, ContainerConfig, ContainerEvents, ContainerFilter, ContainerStats, ContainerStatsFilter,
    ContainerStatus, ExecRequest, ExecSyncOutput, LinuxContainerResources, PodSandbox, PodSandboxConfig,
    PodSandboxFilter, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatus, RuntimeConfig, RuntimeStatus,
    VersionInfo,
};
use crate::{Error, Kind, Result};

/// Service that runs pods and containers: a remote CRI runtime, or a fake.
///
/// Calls that end something are idempotent: what is not there any more is stopped and removed. Calls that not every
/// runtime has answer `Unimplemented` by default. Dropping a future gives the call up, on this side; what the runtime
/// has begun, it may finish.
#[async_trait]
pub trait RuntimeService: Send + Sync + 'static {
    /// Name and versions of the runtime.
    async fn version(&self) -> Result<VersionInfo>;

    /// Conditions and handlers of the runtime.
    async fn status(&self, verbose: bool) -> Result<RuntimeStatus>;

    /// Makes and starts a sandbox with its network; answers its id. When it fails, the runtime has cleaned up, or shows
    /// a sandbox that is not ready.
    ///
    /// # Errors
    /// `InvalidArgument` or `Unknown` for a handler that the runtime does not have, and for a name that is reserved by
    /// a sandbox of the same pod, namespace and attempt.
    async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String>;

    /// Stops the sandbox with all its containers at once, and gives its network back. Idempotent.
    async fn stop_pod_sandbox(&self, id: &str) -> Result<()>;

    /// Removes the sandbox with all its containers, by force if they run. Idempotent.
    async fn remove_pod_sandbox(&self, id: &str) -> Result<()>;

    /// Status of a sandbox.
    ///
    /// # Errors
    /// `NotFound` when there is none of that id.
    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatus>;

    /// Pod sandboxes.
    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>>;

    /// Makes a container in a sandbox; answers its id. The image must be there. The config of the sandbox is the one
    /// that it was made from.
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String>;

    /// Starts a container that was created.
    async fn start_container(&self, id: &str) -> Result<()>;

    /// Asks the container to end, by its stop signal, and ends it by force when `timeout` has passed; zero: at once.
    /// Idempotent. The timeout has a resolution of seconds and is rounded up.
    async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()>;

    /// Removes the container, by force if it runs. Its log stays. Idempotent.
    async fn remove_container(&self, id: &str) -> Result<()>;

    /// Status of a container.
    ///
    /// # Errors
    /// `NotFound` when there is none of that id.
    async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatus>;

    /// Containers.
    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>>;

    /// Runs a command in a running container and waits for its end; after `timeout` it is killed and the call fails
    /// with `DeadlineExceeded`. Zero: no limit. The timeout has a resolution of seconds and is rounded up.
    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecSyncOutput>;

    /// Changes what a container may use.
    async fn update_container_resources(
        &self,
        id: &str,
        resources: &LinuxContainerResources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<()> {
        let _ = (id, resources, annotations);
        Err(unimplemented("UpdateContainerResources"))
    }

    /// Changes the resources that the containers of a pod may use together, and the overhead of the sandbox.
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: &LinuxContainerResources,
        resources: &LinuxContainerResources,
    ) -> Result<()> {
        let _ = (id, overhead, resources);
        Err(unimplemented("UpdatePodSandboxResources"))
    }

    /// Makes the runtime reopen a running container's log file after the file was moved away.
    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let _ = id;
        Err(unimplemented("ReopenContainerLog"))
    }

    /// Prepares a command in a container; answers the URL at which a client streams.
    async fn exec(&self, request: &ExecRequest) -> Result<String> {
        let _ = request;
        Err(unimplemented("Exec"))
    }

    /// Prepares streams to a running container's process; answers the URL at which a client streams.
    async fn attach(&self, request: &AttachRequest) -> Result<String> {
        let _ = request;
        Err(unimplemented("Attach"))
    }

    /// Prepares streams to ports of a sandbox; answers the URL at which a client streams.
    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        let _ = (sandbox_id, ports);
        Err(unimplemented("PortForward"))
    }

    /// Use of one container.
    ///
    /// # Errors
    /// `NotFound` when there is none of that id.
    async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        let _ = id;
        Err(unimplemented("ContainerStats"))
    }

    /// Use of containers that run.
    async fn list_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
        let _ = filter;
        Err(unimplemented("ListContainerStats"))
    }

    /// Use of one pod.
    ///
    /// # Errors
    /// `NotFound` when there is none of that id.
    async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats> {
        let _ = id;
        Err(unimplemented("PodSandboxStats"))
    }

    /// Use of pods that are ready.
    async fn list_pod_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
        let _ = filter;
        Err(unimplemented("ListPodSandboxStats"))
    }

    /// Returns a stream of the events of containers from now on. A runtime that sends no events answers one error, `Unimplemented`.
    fn container_events(&self) -> ContainerEvents {
        Refused::with(unimplemented("GetContainerEvents"))
    }

    /// Informs the runtime of the address range of this node's pods.
    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        let _ = pod_cidr;
        Err(unimplemented("UpdateRuntimeConfig"))
    }

    /// Settings of the runtime that its callers must know.
    async fn runtime_config(&self) -> Result<RuntimeConfig> {
        Err(unimplemented("RuntimeConfig"))
    }
}

fn unimplemented(call: &str) -> Error {
    Error::new(Kind::Unimplemented, format!("{call}: this runtime does not have the call"))
}
