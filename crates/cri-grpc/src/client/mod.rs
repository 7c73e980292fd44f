//! The client side: [`RemoteImageService`] and [`RemoteRuntimeService`] stand behind the traits of `cri-api` and pass
//! every call to a CRI runtime over its socket.
//!
//! Behaves as the kubelet's client: checks the API when it connects, gives every call the request timeout except a
//! pull, which ends when its future is dropped. Connects on demand, and reconnects after a failure.

mod call;
mod connector;
mod image;
mod options;
mod passthrough;
mod runtime;
mod traced;

use std::sync::Arc;
use std::time::Duration;

use cri_api::{Error, ImageService as _, Kind, RuntimeService as _};
use tokio::time::Instant;

pub use image::{AgentAddress, RemoteImageService};
pub use options::{ClientOptions, ConnectBackoff};
pub use passthrough::RuntimePassthrough;
pub use runtime::RemoteRuntimeService;

use crate::{Endpoint, KUBE_RUNTIME_API_VERSION};
use call::Caller;

/// Why a service cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("validate CRI v1 {api} API for endpoint {endpoint:?}")]
pub struct ConnectError {
    api: &'static str,
    endpoint: String,
    #[source]
    cause: Error,
}

impl ConnectError {
    /// Returns `Unavailable` if nothing answers at the endpoint; otherwise the kind of the peer's error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.cause.kind()
    }

    /// The endpoint in its full form.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Error::from_source(error.kind(), &error)
    }
}

/// Connects to the image service at `endpoint` and checks it with ImageFsInfo, as the kubelet does.
///
/// # Errors
/// At once if nothing listens at the endpoint, unless [`ClientOptions::wait`] is set; within the request timeout when the peer
/// does not answer.
pub async fn connect_image_service(
    endpoint: &Endpoint,
    options: ClientOptions,
) -> Result<RemoteImageService, ConnectError> {
    let caller = Arc::new(Caller::new(endpoint, options));
    let service = RemoteImageService::new(Arc::clone(&caller));
    until_answered(&caller, || async { service.image_fs_info().await.map(drop) })
        .await
        .map_err(|cause| ConnectError { api: "image", endpoint: endpoint.to_string(), cause })?;
    Ok(service)
}

/// Connects to the runtime service at `endpoint` and checks it with Version.
///
/// # Errors
/// As [`connect_image_service`], and when the version is not the one that we speak.
pub async fn connect_runtime_service(
    endpoint: &Endpoint,
    options: ClientOptions,
) -> Result<RemoteRuntimeService, ConnectError> {
    let caller = Arc::new(Caller::new(endpoint, options));
    let service = RemoteRuntimeService::new(Arc::clone(&caller));
    until_answered(&caller, || async {
        let version = service.version().await?;
        if version.version != KUBE_RUNTIME_API_VERSION {
            let text = format!(
                "runtime api version is not supported: {:?}, need {KUBE_RUNTIME_API_VERSION:?}",
                version.version
            );
            return Err(Error::new(Kind::FailedPrecondition, text));
        }
        Ok(())
    })
    .await
    .map_err(|cause| ConnectError { api: "runtime", endpoint: endpoint.to_string(), cause })?;
    Ok(service)
}

/// Answer of containerd to every call between its first connection and the moment at which its CRI part is up.
const NOT_YET: &str = "server is not initialized yet";

/// Pause between checks of a peer that is starting, and the least time to repeat them: a start takes milliseconds.
const NOT_YET_PAUSE: Duration = Duration::from_millis(20);
const NOT_YET_PATIENCE: Duration = Duration::from_secs(5);

/// Repeats the check while nothing answers and [`ClientOptions::wait`] has not passed, and while the peer reports that it is
/// not up yet.
async fn until_answered<F: Future<Output = cri_api::Result<()>>>(
    caller: &Caller,
    check: impl Fn() -> F,
) -> cri_api::Result<()> {
    let start = Instant::now();
    let wait = caller.connector.options.wait;
    loop {
        let error = match check().await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let (next, patience) = match error.kind() {
            Kind::Unavailable => (caller.connector.next_attempt(), wait),
            Kind::Unknown if error.message().contains(NOT_YET) => {
                (Instant::now() + NOT_YET_PAUSE, wait.max(NOT_YET_PATIENCE))
            }
            _ => return Err(error),
        };
        if next >= start + patience {
            return Err(error);
        }
        tokio::time::sleep_until(next).await;
    }
}
