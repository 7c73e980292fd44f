//! Handlers of RuntimeService for servers without a runtime, as far as image clients need them, with the stand-in [`NoPods`]
//! behind them; and what all handlers share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cri_api::{
    Condition, Container, ContainerConfig, ContainerFilter, ContainerStatus, Error, ExecSyncOutput, Kind, PodSandbox,
    PodSandboxConfig, PodSandboxFilter, PodSandboxStatus, RuntimeService, RuntimeStatus, VersionInfo,
};
use prost::Message;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use crate::convert::all;
use crate::status::to_status;
use crate::{KUBE_RUNTIME_API_VERSION, pb};

/// Size that a batch of a stream stays below, unless one item alone is larger: a quarter of what the most cautious
/// clients accept.
const BATCH_BYTES: usize = 1024 * 1024;

/// The runtime behind the calls.
pub(super) struct RuntimeCalls {
    service: Arc<dyn RuntimeService>,
}

impl RuntimeCalls {
    pub(super) fn new(service: Arc<dyn RuntimeService>) -> Self {
        Self { service }
    }

    async fn sandboxes(&self, filter: Option<pb::PodSandboxFilter>) -> Result<Vec<pb::PodSandbox>, Status> {
        let filter: Option<PodSandboxFilter> = filter.map(Into::into);
        Ok(all(run("ListPodSandbox", "", self.service.list_pod_sandboxes(filter.as_ref())).await?))
    }

    async fn containers(&self, filter: Option<pb::ContainerFilter>) -> Result<Vec<pb::Container>, Status> {
        let filter: Option<ContainerFilter> = filter.map(Into::into);
        Ok(all(run("ListContainers", "", self.service.list_containers(filter.as_ref())).await?))
    }
}

#[tonic::async_trait]
impl pb::runtime_service_server::RuntimeService for RuntimeCalls {
    async fn version(&self, _: Request<pb::VersionRequest>) -> Result<Response<pb::VersionResponse>, Status> {
        let version = run("Version", "", self.service.version()).await?;
        Ok(Response::new(version.into()))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let status = run("Status", "", self.service.status(request.into_inner().verbose)).await?;
        Ok(Response::new(status.into()))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<pb::ListPodSandboxRequest>,
    ) -> Result<Response<pb::ListPodSandboxResponse>, Status> {
        let items = self.sandboxes(request.into_inner().filter).await?;
        Ok(Response::new(pb::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<pb::StreamPodSandboxesRequest>,
    ) -> Result<Response<BoxStream<pb::StreamPodSandboxesResponse>>, Status> {
        let items = self.sandboxes(request.into_inner().filter).await?;
        Ok(Response::new(batches(items, |pod_sandboxes| pb::StreamPodSandboxesResponse { pod_sandboxes })))
    }

    async fn list_containers(
        &self,
        request: Request<pb::ListContainersRequest>,
    ) -> Result<Response<pb::ListContainersResponse>, Status> {
        let containers = self.containers(request.into_inner().filter).await?;
        Ok(Response::new(pb::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<pb::StreamContainersRequest>,
    ) -> Result<Response<BoxStream<pb::StreamContainersResponse>>, Status> {
        let items = self.containers(request.into_inner().filter).await?;
        Ok(Response::new(batches(items, |containers| pb::StreamContainersResponse { containers })))
    }
}

/// The runtime of a server that has none: it names itself, is not ready for pods, and has no pods.
pub(super) struct NoPods {
    version: String,
}

impl NoPods {
    pub(super) fn new(version: String) -> Self {
        Self { version }
    }
}

#[async_trait]
impl RuntimeService for NoPods {
    async fn version(&self) -> cri_api::Result<VersionInfo> {
        Ok(VersionInfo {
            version: KUBE_RUNTIME_API_VERSION.into(),
            runtime_name: "imagelet".into(),
            runtime_version: self.version.clone(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self, _verbose: bool) -> cri_api::Result<RuntimeStatus> {
        let conditions = ["RuntimeReady", "NetworkReady"].map(|kind| Condition {
            kind: kind.into(),
            status: false,
            reason: "ImageServiceOnly".into(),
            message: "this endpoint serves images and runs no pods".into(),
        });
        Ok(RuntimeStatus { conditions: conditions.into(), ..RuntimeStatus::default() })
    }

    async fn run_pod_sandbox(&self, _config: &PodSandboxConfig, _runtime_handler: &str) -> cri_api::Result<String> {
        Err(images_only("RunPodSandbox"))
    }

    async fn stop_pod_sandbox(&self, _id: &str) -> cri_api::Result<()> {
        Err(images_only("StopPodSandbox"))
    }

    async fn remove_pod_sandbox(&self, _id: &str) -> cri_api::Result<()> {
        Err(images_only("RemovePodSandbox"))
    }

    async fn pod_sandbox_status(&self, _id: &str, _verbose: bool) -> cri_api::Result<PodSandboxStatus> {
        Err(images_only("PodSandboxStatus"))
    }

    async fn list_pod_sandboxes(&self, _filter: Option<&PodSandboxFilter>) -> cri_api::Result<Vec<PodSandbox>> {
        Ok(Vec::new())
    }

    async fn create_container(
        &self,
        _sandbox_id: &str,
        _config: &ContainerConfig,
        _sandbox_config: &PodSandboxConfig,
    ) -> cri_api::Result<String> {
        Err(images_only("CreateContainer"))
    }

    async fn start_container(&self, _id: &str) -> cri_api::Result<()> {
        Err(images_only("StartContainer"))
    }

    async fn stop_container(&self, _id: &str, _timeout: Duration) -> cri_api::Result<()> {
        Err(images_only("StopContainer"))
    }

    async fn remove_container(&self, _id: &str) -> cri_api::Result<()> {
        Err(images_only("RemoveContainer"))
    }

    async fn container_status(&self, _id: &str, _verbose: bool) -> cri_api::Result<ContainerStatus> {
        Err(images_only("ContainerStatus"))
    }

    async fn exec_sync(&self, _id: &str, _command: &[String], _timeout: Duration) -> cri_api::Result<ExecSyncOutput> {
        Err(images_only("ExecSync"))
    }

    async fn list_containers(&self, _filter: Option<&ContainerFilter>) -> cri_api::Result<Vec<Container>> {
        Ok(Vec::new())
    }
}

fn images_only(call: &str) -> Error {
    Error::new(Kind::Unimplemented, format!("{call}: this endpoint serves images and runs no pods"))
}

/// Runs a call to the service's answer. `subject` is for the log.
pub(super) async fn run<T>(
    name: &'static str,
    subject: &str,
    call: impl Future<Output = cri_api::Result<T>> + Send,
) -> Result<T, Status> {
    let mut log = CallLog { name, subject, start: Instant::now(), outcome: CallOutcome::Dropped };
    let outcome = call.await.map_err(|error| to_status(&error));
    log.outcome = match &outcome {
        Ok(_) => CallOutcome::Done,
        Err(status) => CallOutcome::Failed(format!("{:?}: {}", status.code(), status.message())),
    };
    outcome
}

/// Writes one line when a call ends, also when nobody wants its answer any more.
struct CallLog<'a> {
    name: &'static str,
    subject: &'a str,
    start: Instant,
    outcome: CallOutcome,
}

/// The end of a call.
enum CallOutcome {
    /// Dropped before it ended.
    Dropped,
    Done,
    /// Answered with this error.
    Failed(String),
}

impl Drop for CallLog<'_> {
    fn drop(&mut self) {
        let outcome = match &self.outcome {
            CallOutcome::Dropped => "ended before its answer: by its client, or with the server",
            CallOutcome::Done => "done",
            CallOutcome::Failed(error) => error,
        };
        let duration = self.start.elapsed();
        tracing::debug!(call = self.name, subject = self.subject, ?duration, outcome, "call ended");
    }
}

/// The items in messages of moderate size, at least one in each. No items, no message.
pub(crate) fn batches<T, M>(items: Vec<T>, message: impl Fn(Vec<T>) -> M + Send + 'static) -> BoxStream<M>
where
    T: Message + 'static,
    M: Send + 'static,
{
    let mut rest = items.into_iter().peekable();
    let messages = std::iter::from_fn(move || {
        let mut batch = vec![rest.next()?];
        let mut bytes = batch[0].encoded_len();
        while let Some(item) = rest.next_if(|item| {
            // Tag and length take a few bytes of their own.
            bytes += item.encoded_len() + 8;
            bytes <= BATCH_BYTES
        }) {
            batch.push(item);
        }
        Some(Ok(message(batch)))
    });
    Box::pin(futures::stream::iter(messages))
}
