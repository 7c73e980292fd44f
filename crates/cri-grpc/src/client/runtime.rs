//! [`RemoteRuntimeService`]: a container runtime on the other side of a socket. It converts and checks what the kubelet's
//! client checks: that what was made has an id, and that a status is one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{
    AttachRequest, Container, ContainerConfig, ContainerEvents, ContainerFilter, ContainerStats, ContainerStatsFilter,
    ContainerStatus, Error, ExecRequest, ExecSyncOutput, Kind, LinuxContainerResources, PodSandbox, PodSandboxConfig,
    PodSandboxFilter, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatus, Result, RuntimeConfig, RuntimeService,
    RuntimeStatus, VersionInfo,
};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::call::{Caller, ListMode};
use super::passthrough::RuntimePassthrough;
use super::traced::TracedChannel;
use crate::convert::all;
use crate::pb::runtime_service_client::RuntimeServiceClient;
use crate::{Endpoint, KUBE_RUNTIME_API_VERSION, pb};

/// A runtime on the other side of a socket. Made by
/// [`connect_runtime_service`](super::connect_runtime_service); clones share the connection.
#[derive(Clone)]
pub struct RemoteRuntimeService {
    caller: Arc<Caller>,
    lists: Arc<ListMode>,
}

impl RemoteRuntimeService {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        let lists = Arc::new(ListMode::new(&caller.connector.options));
        Self { caller, lists }
    }

    /// The runtime at an endpoint, which is asked nothing yet. Its API is not checked: for single questions.
    #[must_use]
    pub fn of(endpoint: &Endpoint, options: super::ClientOptions) -> Self {
        Self::new(Arc::new(Caller::new(endpoint, options)))
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.caller.connector.endpoint
    }

    /// Returns the same runtime, for forwarded calls that are not decoded.
    #[must_use]
    pub fn passthrough(&self) -> RuntimePassthrough {
        RuntimePassthrough::new(Arc::clone(&self.caller))
    }

    fn client(&self) -> RuntimeServiceClient<TracedChannel> {
        RuntimeServiceClient::new(self.caller.channel.clone())
            .max_decoding_message_size(self.caller.connector.options.max_message_bytes)
    }

    fn timeout(&self) -> Duration {
        self.caller.connector.options.request_timeout
    }

    /// A call about one sandbox or container, with the request timeout.
    async fn about<T>(
        &self,
        name: &str,
        id: &str,
        call: impl Future<Output = std::result::Result<tonic::Response<T>, tonic::Status>> + Send,
    ) -> Result<T> {
        self.caller.about(name, &format!("{id:?}"), Some(self.timeout()), call).await
    }
}

#[async_trait]
impl RuntimeService for RemoteRuntimeService {
    async fn version(&self) -> Result<VersionInfo> {
        let request = pb::VersionRequest { version: KUBE_RUNTIME_API_VERSION.into() };
        let answer = self.caller.timed("Version", self.client().version(request)).await?;
        let info = VersionInfo::from(answer.into_inner());
        let fields = [
            ("version", &info.version),
            ("runtime_name", &info.runtime_name),
            ("runtime_version", &info.runtime_version),
            ("runtime_api_version", &info.runtime_api_version),
        ];
        let missing: Vec<&str> = fields.iter().filter(|(_, text)| text.is_empty()).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            let text = format!("not all fields are set in VersionResponse (missing {})", missing.join(", "));
            return Err(Error::new(Kind::Internal, text));
        }
        Ok(info)
    }

    async fn status(&self, verbose: bool) -> Result<RuntimeStatus> {
        let answer = self.caller.timed("Status", self.client().status(pb::StatusRequest { verbose })).await?;
        Ok(answer.into_inner().into())
    }

    async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        let subject = format!("for pod \"{}/{}\"", config.metadata.namespace, config.metadata.name);
        let request = pb::RunPodSandboxRequest {
            config: Some(config.clone().into()),
            runtime_handler: runtime_handler.to_owned(),
        };
        // As the kubelet: it also makes the network, and may pull the sandbox's image.
        let limit = self.timeout().saturating_mul(2);
        let mut client = self.client();
        let call = self.caller.about("RunPodSandbox", &subject, Some(limit), client.run_pod_sandbox(request));
        set(call.await?.pod_sandbox_id, || format!("RunPodSandbox {subject}: the answer has no id"))
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = pb::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        ignore_not_found(self.about("StopPodSandbox", id, self.client().stop_pod_sandbox(request)).await)
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = pb::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        ignore_not_found(self.about("RemovePodSandbox", id, self.client().remove_pod_sandbox(request)).await)
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatus> {
        let request = pb::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose };
        let answer = self.about("PodSandboxStatus", id, self.client().pod_sandbox_status(request)).await?;
        let status = PodSandboxStatus::from(answer);
        let metadata = &status.metadata;
        complete(
            "PodSandboxStatus",
            id,
            &[
                ("id", !status.id.is_empty()),
                ("metadata.name", !metadata.name.is_empty()),
                ("metadata.namespace", !metadata.namespace.is_empty()),
                ("metadata.uid", !metadata.uid.is_empty()),
                ("created_at", status.created_at != 0),
            ],
        )?;
        Ok(status)
    }

    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
        let filter: Option<pb::PodSandboxFilter> = filter.map(|f| f.clone().into());
        let (mut streaming, mut whole) = (self.client(), self.client());
        let list = self.lists.collect(
            streaming.stream_pod_sandboxes(pb::StreamPodSandboxesRequest { filter: filter.clone() }),
            |batch| batch.pod_sandboxes,
            async move {
                let answer = whole.list_pod_sandbox(pb::ListPodSandboxRequest { filter }).await?;
                Ok(answer.into_inner().items)
            },
        );
        Ok(all(self.caller.timed("ListPodSandbox", list).await?))
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let subject = format!("{:?} in sandbox {sandbox_id:?}", config.metadata.name);
        let request = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config.clone().into()),
            sandbox_config: Some(sandbox_config.clone().into()),
        };
        let (limit, mut client) = (Some(self.timeout()), self.client());
        let call = self.caller.about("CreateContainer", &subject, limit, client.create_container(request));
        set(call.await?.container_id, || format!("CreateContainer {subject}: the answer has no id"))
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = pb::StartContainerRequest { container_id: id.to_owned() };
        self.about("StartContainer", id, self.client().start_container(request)).await.map(drop)
    }

    async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        let request = pb::StopContainerRequest { container_id: id.to_owned(), timeout: seconds(timeout) };
        let limit = self.timeout().saturating_add(timeout);
        let subject = format!("{id:?}");
        ignore_not_found(
            self.caller.about("StopContainer", &subject, Some(limit), self.client().stop_container(request)).await,
        )
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = pb::RemoveContainerRequest { container_id: id.to_owned() };
        ignore_not_found(self.about("RemoveContainer", id, self.client().remove_container(request)).await)
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatus> {
        let request = pb::ContainerStatusRequest { container_id: id.to_owned(), verbose };
        let answer = self.about("ContainerStatus", id, self.client().container_status(request)).await?;
        let status = ContainerStatus::from(answer);
        complete(
            "ContainerStatus",
            id,
            &[
                ("id", !status.id.is_empty()),
                ("metadata.name", !status.metadata.name.is_empty()),
                ("created_at", status.created_at != 0),
                ("image", !status.image.image.is_empty()),
                ("image_ref", !status.image_ref.is_empty()),
            ],
        )?;
        Ok(status)
    }

    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>> {
        let filter: Option<pb::ContainerFilter> = filter.map(|f| f.clone().into());
        let (mut streaming, mut whole) = (self.client(), self.client());
        let list = self.lists.collect(
            streaming.stream_containers(pb::StreamContainersRequest { filter: filter.clone() }),
            |batch| batch.containers,
            async move {
                let answer = whole.list_containers(pb::ListContainersRequest { filter }).await?;
                Ok(answer.into_inner().containers)
            },
        );
        Ok(all(self.caller.timed("ListContainers", list).await?))
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecSyncOutput> {
        let request =
            pb::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: seconds(timeout) };
        // As the kubelet: a command without a limit has none here either.
        let limit = (!timeout.is_zero()).then(|| self.timeout().saturating_add(timeout));
        let answer = self.caller.about("ExecSync", &format!("{id:?}"), limit, self.client().exec_sync(request)).await?;
        Ok(answer.into())
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: &LinuxContainerResources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<()> {
        let request = pb::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources.clone().into()),
            windows: None,
            annotations: annotations.clone(),
        };
        let mut client = self.client();
        self.about("UpdateContainerResources", id, client.update_container_resources(request)).await.map(drop)
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: &LinuxContainerResources,
        resources: &LinuxContainerResources,
    ) -> Result<()> {
        let request = pb::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_owned(),
            overhead: Some(overhead.clone().into()),
            resources: Some(resources.clone().into()),
        };
        let mut client = self.client();
        self.about("UpdatePodSandboxResources", id, client.update_pod_sandbox_resources(request)).await.map(drop)
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let request = pb::ReopenContainerLogRequest { container_id: id.to_owned() };
        self.about("ReopenContainerLog", id, self.client().reopen_container_log(request)).await.map(drop)
    }

    async fn exec(&self, request: &ExecRequest) -> Result<String> {
        let ExecRequest { container_id, command, tty, stdin, stdout, stderr } = request.clone();
        let message = pb::ExecRequest { container_id, cmd: command, tty, stdin, stdout, stderr };
        let answer = self.about("Exec", &request.container_id, self.client().exec(message)).await?;
        set(answer.url, || format!("Exec {:?}: the answer has no URL", request.container_id))
    }

    async fn attach(&self, request: &AttachRequest) -> Result<String> {
        let AttachRequest { container_id, tty, stdin, stdout, stderr } = request.clone();
        let message = pb::AttachRequest { container_id, stdin, tty, stdout, stderr };
        let answer = self.about("Attach", &request.container_id, self.client().attach(message)).await?;
        set(answer.url, || format!("Attach {:?}: the answer has no URL", request.container_id))
    }

    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        let port = ports.iter().copied().map(i32::from).collect();
        let request = pb::PortForwardRequest { pod_sandbox_id: sandbox_id.to_owned(), port };
        let answer = self.about("PortForward", sandbox_id, self.client().port_forward(request)).await?;
        set(answer.url, || format!("PortForward {sandbox_id:?}: the answer has no URL"))
    }

    async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        let request = pb::ContainerStatsRequest { container_id: id.to_owned() };
        let answer = self.about("ContainerStats", id, self.client().container_stats(request)).await?;
        answer.stats.map(Into::into).ok_or_else(|| no_stats("ContainerStats", id))
    }

    async fn list_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
        let filter: Option<pb::ContainerStatsFilter> = filter.map(|f| f.clone().into());
        let (mut streaming, mut whole) = (self.client(), self.client());
        let list = self.lists.collect(
            streaming.stream_container_stats(pb::StreamContainerStatsRequest { filter: filter.clone() }),
            |batch| batch.container_stats,
            async move {
                let answer = whole.list_container_stats(pb::ListContainerStatsRequest { filter }).await?;
                Ok(answer.into_inner().stats)
            },
        );
        Ok(all(self.caller.timed("ListContainerStats", list).await?))
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats> {
        let request = pb::PodSandboxStatsRequest { pod_sandbox_id: id.to_owned() };
        let answer = self.about("PodSandboxStats", id, self.client().pod_sandbox_stats(request)).await?;
        answer.stats.map(Into::into).ok_or_else(|| no_stats("PodSandboxStats", id))
    }

    async fn list_pod_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
        let filter: Option<pb::PodSandboxStatsFilter> = filter.map(|f| f.clone().into());
        let (mut streaming, mut whole) = (self.client(), self.client());
        let list = self.lists.collect(
            streaming.stream_pod_sandbox_stats(pb::StreamPodSandboxStatsRequest { filter: filter.clone() }),
            |batch| batch.pod_sandbox_stats,
            async move {
                let answer = whole.list_pod_sandbox_stats(pb::ListPodSandboxStatsRequest { filter }).await?;
                Ok(answer.into_inner().stats)
            },
        );
        Ok(all(self.caller.timed("ListPodSandboxStats", list).await?))
    }

    /// A peer in Go answers nothing at all before the first event: the call is open when it is polled, not when it answers.
    fn container_events(&self) -> ContainerEvents {
        let mut client = self.client();
        let caller = Arc::clone(&self.caller);
        let opened = async move {
            let answer = client.get_container_events(pb::GetEventsRequest {}).await?;
            Ok::<_, tonic::Status>(answer.into_inner())
        };
        let events = stream::once(opened).try_flatten();
        Box::pin(events.map(move |event| match event {
            Ok(event) => Ok(event.into()),
            Err(status) => Err(caller.error(&status).context("GetContainerEvents")),
        }))
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        let network_config = Some(pb::NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let request = pb::UpdateRuntimeConfigRequest { runtime_config: Some(pb::RuntimeConfig { network_config }) };
        self.about("UpdateRuntimeConfig", pod_cidr, self.client().update_runtime_config(request)).await.map(drop)
    }

    async fn runtime_config(&self) -> Result<RuntimeConfig> {
        let answer =
            self.caller.timed("RuntimeConfig", self.client().runtime_config(pb::RuntimeConfigRequest {})).await?;
        Ok(answer.into_inner().into())
    }
}

/// Ending what is not there is done. Most runtimes say so themselves.
fn ignore_not_found<T>(answer: Result<T>) -> Result<()> {
    match answer {
        Err(error) if error.kind() != Kind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Rounds up to whole seconds, so that no call gets less time than intended.
fn seconds(time: Duration) -> i64 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn set(text: String, missing: impl FnOnce() -> String) -> Result<String> {
    if text.is_empty() { Err(Error::new(Kind::Internal, missing())) } else { Ok(text) }
}

fn complete(call: &str, id: &str, fields: &[(&str, bool)]) -> Result<()> {
    match fields.iter().find(|(_, is_set)| !is_set) {
        None => Ok(()),
        Some((field, _)) => Err(Error::new(Kind::Internal, format!("{call} {id:?}: status.{field} is not set"))),
    }
}

fn no_stats(call: &str, id: &str) -> Error {
    Error::new(Kind::Internal, format!("{call} {id:?}: the answer has no stats"))
}

impl fmt::Debug for RemoteRuntimeService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteRuntimeService").field(self.endpoint()).finish()
    }
}
