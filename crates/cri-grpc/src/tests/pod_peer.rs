//! A container runtime on a socket: the generated server side over the fake, converted the other way round. Only tests
//! have one; this program serves no pods.

use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use cri_api::{AttachRequest, ContainerConfig, ExecRequest, ImageSpec, PodSandboxConfig, RuntimeService};
use futures::StreamExt as _;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::support::{Raw, raw};
use crate::pb;
use crate::status::to_status;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Clone)]
pub(crate) struct Peer {
    runtime: Arc<dyn RuntimeService>,
    /// Answers are empty where a thing was made, or asked for.
    forgets: bool,
    /// The timeouts of StopContainer as received over the wire, in seconds.
    stop_timeouts: Arc<Mutex<Vec<i64>>>,
}

impl Peer {
    pub(crate) fn new(runtime: impl RuntimeService) -> Self {
        Self { runtime: Arc::new(runtime), forgets: false, stop_timeouts: Arc::default() }
    }

    /// A peer that answers without the id of the object that was made.
    pub(crate) fn forgetful(self) -> Self {
        Self { forgets: true, ..self }
    }

    /// The timeouts of StopContainer from now on, in seconds.
    pub(crate) fn stop_timeouts(&self) -> Arc<Mutex<Vec<i64>>> {
        Arc::clone(&self.stop_timeouts)
    }

    pub(crate) fn serve(self) -> Raw {
        raw(pb::runtime_service_server::RuntimeServiceServer::new(self))
    }

    fn answer<T: Default>(&self, answer: T) -> T {
        if self.forgets { T::default() } else { answer }
    }
}

fn done<T, U>(result: cri_api::Result<T>, convert: impl FnOnce(T) -> U) -> Answer<U> {
    result.map(|value| Response::new(convert(value))).map_err(|error| to_status(&error))
}

fn all<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
    crate::convert::all(values)
}

fn sandbox_config(config: Option<pb::PodSandboxConfig>) -> PodSandboxConfig {
    config.expect("a config is always sent").into()
}

#[tonic::async_trait]
impl pb::runtime_service_server::RuntimeService for Peer {
    async fn version(&self, _: Request<pb::VersionRequest>) -> Answer<pb::VersionResponse> {
        done(self.runtime.version().await, Into::into)
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        done(self.runtime.status(request.into_inner().verbose).await, Into::into)
    }

    async fn run_pod_sandbox(&self, request: Request<pb::RunPodSandboxRequest>) -> Answer<pb::RunPodSandboxResponse> {
        let pb::RunPodSandboxRequest { config, runtime_handler } = request.into_inner();
        done(self.runtime.run_pod_sandbox(&sandbox_config(config), &runtime_handler).await, |id| {
            pb::RunPodSandboxResponse { pod_sandbox_id: self.answer(id) }
        })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<pb::StopPodSandboxRequest>,
    ) -> Answer<pb::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        done(self.runtime.stop_pod_sandbox(&id).await, |()| pb::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<pb::RemovePodSandboxRequest>,
    ) -> Answer<pb::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        done(self.runtime.remove_pod_sandbox(&id).await, |()| pb::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<pb::PodSandboxStatusRequest>,
    ) -> Answer<pb::PodSandboxStatusResponse> {
        let pb::PodSandboxStatusRequest { pod_sandbox_id, verbose } = request.into_inner();
        done(self.runtime.pod_sandbox_status(&pod_sandbox_id, verbose).await, |status| self.answer(status.into()))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<pb::ListPodSandboxRequest>,
    ) -> Answer<pb::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.map(Into::into);
        done(self.runtime.list_pod_sandboxes(filter.as_ref()).await, |list| pb::ListPodSandboxResponse {
            items: all(list),
        })
    }

    async fn create_container(
        &self,
        request: Request<pb::CreateContainerRequest>,
    ) -> Answer<pb::CreateContainerResponse> {
        let pb::CreateContainerRequest { pod_sandbox_id, config, sandbox_config: of } = request.into_inner();
        let config: ContainerConfig = config.expect("a config is always sent").into();
        let result = self.runtime.create_container(&pod_sandbox_id, &config, &sandbox_config(of)).await;
        done(result, |id| pb::CreateContainerResponse { container_id: self.answer(id) })
    }

    async fn start_container(&self, request: Request<pb::StartContainerRequest>) -> Answer<pb::StartContainerResponse> {
        let id = request.into_inner().container_id;
        done(self.runtime.start_container(&id).await, |()| pb::StartContainerResponse {})
    }

    async fn stop_container(&self, request: Request<pb::StopContainerRequest>) -> Answer<pb::StopContainerResponse> {
        let pb::StopContainerRequest { container_id, timeout } = request.into_inner();
        self.stop_timeouts.lock().push(timeout);
        let timeout = Duration::from_secs(timeout.try_into().expect("not below zero"));
        done(self.runtime.stop_container(&container_id, timeout).await, |()| pb::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<pb::RemoveContainerRequest>,
    ) -> Answer<pb::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        done(self.runtime.remove_container(&id).await, |()| pb::RemoveContainerResponse {})
    }

    async fn list_containers(&self, request: Request<pb::ListContainersRequest>) -> Answer<pb::ListContainersResponse> {
        let filter = request.into_inner().filter.map(Into::into);
        done(self.runtime.list_containers(filter.as_ref()).await, |list| pb::ListContainersResponse {
            containers: all(list),
        })
    }

    async fn container_status(
        &self,
        request: Request<pb::ContainerStatusRequest>,
    ) -> Answer<pb::ContainerStatusResponse> {
        let pb::ContainerStatusRequest { container_id, verbose } = request.into_inner();
        done(self.runtime.container_status(&container_id, verbose).await, |mut status| {
            if self.forgets {
                status.image = ImageSpec::default();
            }
            status.into()
        })
    }

    async fn update_container_resources(
        &self,
        request: Request<pb::UpdateContainerResourcesRequest>,
    ) -> Answer<pb::UpdateContainerResourcesResponse> {
        let pb::UpdateContainerResourcesRequest { container_id, linux, annotations, .. } = request.into_inner();
        let resources = linux.expect("always sent").into();
        let result = self.runtime.update_container_resources(&container_id, &resources, &annotations).await;
        done(result, |()| pb::UpdateContainerResourcesResponse {})
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<pb::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<pb::UpdatePodSandboxResourcesResponse> {
        let pb::UpdatePodSandboxResourcesRequest { pod_sandbox_id, overhead, resources } = request.into_inner();
        let (overhead, resources) = (overhead.expect("always sent").into(), resources.expect("always sent").into());
        let result = self.runtime.update_pod_sandbox_resources(&pod_sandbox_id, &overhead, &resources).await;
        done(result, |()| pb::UpdatePodSandboxResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<pb::ReopenContainerLogRequest>,
    ) -> Answer<pb::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        done(self.runtime.reopen_container_log(&id).await, |()| pb::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<pb::ExecSyncRequest>) -> Answer<pb::ExecSyncResponse> {
        let pb::ExecSyncRequest { container_id, cmd, timeout } = request.into_inner();
        let timeout = Duration::from_secs(timeout.try_into().expect("not below zero"));
        done(self.runtime.exec_sync(&container_id, &cmd, timeout).await, |output| {
            let cri_api::ExecSyncOutput { stdout, stderr, exit_code } = output;
            pb::ExecSyncResponse { stdout, stderr, exit_code }
        })
    }

    async fn exec(&self, request: Request<pb::ExecRequest>) -> Answer<pb::ExecResponse> {
        let pb::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = request.into_inner();
        let request = ExecRequest { container_id, command: cmd, tty, stdin, stdout, stderr };
        done(self.runtime.exec(&request).await, |url| pb::ExecResponse { url: self.answer(url) })
    }

    async fn attach(&self, request: Request<pb::AttachRequest>) -> Answer<pb::AttachResponse> {
        let pb::AttachRequest { container_id, stdin, tty, stdout, stderr } = request.into_inner();
        let request = AttachRequest { container_id, tty, stdin, stdout, stderr };
        done(self.runtime.attach(&request).await, |url| pb::AttachResponse { url: self.answer(url) })
    }

    async fn port_forward(&self, request: Request<pb::PortForwardRequest>) -> Answer<pb::PortForwardResponse> {
        let pb::PortForwardRequest { pod_sandbox_id, port } = request.into_inner();
        let ports: Vec<u16> = port.into_iter().map(|port| port.try_into().expect("a port")).collect();
        done(self.runtime.port_forward(&pod_sandbox_id, &ports).await, |url| pb::PortForwardResponse {
            url: self.answer(url),
        })
    }

    async fn container_stats(&self, request: Request<pb::ContainerStatsRequest>) -> Answer<pb::ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        done(self.runtime.container_stats(&id).await, |stats| {
            self.answer(pb::ContainerStatsResponse { stats: Some(stats.into()) })
        })
    }

    async fn list_container_stats(
        &self,
        request: Request<pb::ListContainerStatsRequest>,
    ) -> Answer<pb::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.map(Into::into);
        done(self.runtime.list_container_stats(filter.as_ref()).await, |list| pb::ListContainerStatsResponse {
            stats: all(list),
        })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<pb::PodSandboxStatsRequest>,
    ) -> Answer<pb::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        done(self.runtime.pod_sandbox_stats(&id).await, |stats| {
            self.answer(pb::PodSandboxStatsResponse { stats: Some(stats.into()) })
        })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<pb::StreamPodSandboxStatsRequest>,
    ) -> Answer<BoxStream<pb::StreamPodSandboxStatsResponse>> {
        let filter = request.into_inner().filter.map(Into::into);
        done(self.runtime.list_pod_sandbox_stats(filter.as_ref()).await, |list| {
            let batches = list
                .into_iter()
                .map(|one| Ok(pb::StreamPodSandboxStatsResponse { pod_sandbox_stats: vec![one.into()] }));
            Box::pin(futures::stream::iter(batches)) as BoxStream<_>
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<pb::ListPodSandboxStatsRequest>,
    ) -> Answer<pb::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.map(Into::into);
        done(self.runtime.list_pod_sandbox_stats(filter.as_ref()).await, |list| pb::ListPodSandboxStatsResponse {
            stats: all(list),
        })
    }

    async fn get_container_events(
        &self,
        _: Request<pb::GetEventsRequest>,
    ) -> Answer<BoxStream<pb::ContainerEventResponse>> {
        let events = self.runtime.container_events().map(|event| {
            let event = event.map_err(|error| to_status(&error))?;
            let sandbox = event.sandbox.and_then(|sandbox| pb::PodSandboxStatusResponse::from(sandbox).status);
            Ok(pb::ContainerEventResponse {
                container_id: event.container_id,
                container_event_type: event.kind as i32,
                created_at: event.created_at,
                pod_sandbox_status: sandbox,
                containers_statuses: all(event.containers),
            })
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn update_runtime_config(
        &self,
        request: Request<pb::UpdateRuntimeConfigRequest>,
    ) -> Answer<pb::UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        let cidr = network.expect("always sent").pod_cidr;
        done(self.runtime.update_runtime_config(&cidr).await, |()| pb::UpdateRuntimeConfigResponse {})
    }

    async fn runtime_config(&self, _: Request<pb::RuntimeConfigRequest>) -> Answer<pb::RuntimeConfigResponse> {
        done(self.runtime.runtime_config().await, |_| {
            let cgroup_driver = pb::CgroupDriver::Cgroupfs as i32;
            pb::RuntimeConfigResponse { linux: Some(pb::LinuxRuntimeConfiguration { cgroup_driver }) }
        })
    }
}
