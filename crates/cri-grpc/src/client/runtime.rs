//! [`RemoteRuntimeService`]: what images need to know of a runtime: its version and condition, and who runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    Container, ContainerFilter, Error, Kind, PodSandbox, PodSandboxFilter, Result, RuntimeService, RuntimeStatus,
    VersionInfo,
};
use tonic::transport::Channel;

use super::call::{Caller, ListMode};
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
        let lists = Arc::new(ListMode::new(caller.options()));
        Self { caller, lists }
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    fn client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.caller.channel())
            .max_decoding_message_size(self.caller.options().max_message_bytes)
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
}

impl fmt::Debug for RemoteRuntimeService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteRuntimeService").field(self.endpoint()).finish()
    }
}
