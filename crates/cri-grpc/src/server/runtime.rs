//! [`NoPods`]: the handlers of RuntimeService for servers without a runtime, as far as image clients need them; and the code that
//! all handlers share.

use std::time::Instant;

use prost::Message;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use crate::status::to_status;
use crate::{KUBE_RUNTIME_API_VERSION, pb};

/// Size that a batch of a stream stays below, unless one item alone is larger: a quarter of what the most cautious
/// clients accept.
const BATCH_BYTES: usize = 1024 * 1024;

/// The runtime of a server that has none: it names itself, is not ready for pods, and has no pods.
pub(super) struct NoPods {
    version: String,
}

impl NoPods {
    pub(super) fn new(version: String) -> Self {
        Self { version }
    }
}

/// Answers a call with a fixed value.
async fn answer<T: Send>(name: &'static str, value: T) -> Result<Response<T>, Status> {
    run(name, "", std::future::ready(Ok(Response::new(value)))).await
}

#[tonic::async_trait]
impl pb::runtime_service_server::RuntimeService for NoPods {
    async fn version(&self, _: Request<pb::VersionRequest>) -> Result<Response<pb::VersionResponse>, Status> {
        let version = pb::VersionResponse {
            version: KUBE_RUNTIME_API_VERSION.into(),
            runtime_name: "imagelet".into(),
            runtime_version: self.version.clone(),
            runtime_api_version: "v1".into(),
        };
        answer("Version", version).await
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let conditions = ["RuntimeReady", "NetworkReady"].map(|kind| pb::RuntimeCondition {
            r#type: kind.into(),
            status: false,
            reason: "ImageServiceOnly".into(),
            message: "this endpoint serves images and runs no pods".into(),
        });
        let status = pb::RuntimeStatus { conditions: conditions.into() };
        answer("Status", pb::StatusResponse { status: Some(status), ..Default::default() }).await
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<pb::ListPodSandboxRequest>,
    ) -> Result<Response<pb::ListPodSandboxResponse>, Status> {
        answer("ListPodSandbox", pb::ListPodSandboxResponse::default()).await
    }

    async fn stream_pod_sandboxes(
        &self,
        _: Request<pb::StreamPodSandboxesRequest>,
    ) -> Result<Response<BoxStream<pb::StreamPodSandboxesResponse>>, Status> {
        answer("ListPodSandbox", Box::pin(futures::stream::empty()) as BoxStream<_>).await
    }

    async fn list_containers(
        &self,
        _: Request<pb::ListContainersRequest>,
    ) -> Result<Response<pb::ListContainersResponse>, Status> {
        answer("ListContainers", pb::ListContainersResponse::default()).await
    }

    async fn stream_containers(
        &self,
        _: Request<pb::StreamContainersRequest>,
    ) -> Result<Response<BoxStream<pb::StreamContainersResponse>>, Status> {
        answer("ListContainers", Box::pin(futures::stream::empty()) as BoxStream<_>).await
    }
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

/// Writes one line when a call ends, even if its caller has disconnected.
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
