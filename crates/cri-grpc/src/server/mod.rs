//! The server side: any [`ImageService`] on a unix socket, as a kubelet, crictl or another imagelet expects it.
//!
//! All of ImageService; of RuntimeService what a client asks for when it connects, from a given runtime or from a
//! stand-in that says that no pods run here; `Unimplemented` with a reason for the rest. A call whose client goes away
//! is dropped at once, and with it the future of the service.

mod connection;
mod image;
mod listener;
mod runtime;
mod served;

use std::sync::Arc;
use std::time::Duration;

use cri_api::{ImageService, RuntimeService};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection::Connections;
use served::CallRouter;

pub use listener::{BindError, Listener, bind, bind_private};
#[cfg(test)]
pub(crate) use runtime::batches;

use crate::pb::image_service_server::ImageServiceServer;
use crate::pb::runtime_service_server::RuntimeServiceServer;
use crate::{Endpoint, MAX_MESSAGE_BYTES};

/// How long connections have to close once every call has ended.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Services behind a server, and its limits.
#[derive(Clone)]
pub struct ServerOptions {
    pub image: Arc<dyn ImageService>,
    /// The runtime whose answers are passed on; without one a stand-in answers that there are no pods.
    pub runtime: Option<Arc<dyn RuntimeService>>,
    /// The version that the stand-in names.
    pub version: String,
    /// How long calls may go on after the order to stop: 10 seconds. What is left then ends with `Unavailable`.
    pub grace: Duration,
}

impl ServerOptions {
    /// Only images, with the defaults.
    #[must_use]
    pub fn new(image: Arc<dyn ImageService>, version: impl Into<String>) -> Self {
        Self { image, runtime: None, version: version.into(), grace: Duration::from_secs(10) }
    }
}

/// Why serving ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The listening socket could not be handed to the reactor.
    #[error("listen on {endpoint}")]
    Listen {
        endpoint: Endpoint,
        #[source]
        source: std::io::Error,
    },
}

/// Binds the endpoint and serves on it until `shutdown` is cancelled.
///
/// # Errors
/// See [`ServeError`]; after `shutdown` it ends without one.
pub async fn serve(endpoint: &Endpoint, options: ServerOptions, shutdown: CancellationToken) -> Result<(), ServeError> {
    let path = endpoint.clone();
    // It may wait for another process that starts at this moment.
    let listener = tokio::task::spawn_blocking(move || bind(&path)).await.expect("bind does not panic")?;
    serve_on(listener, options, shutdown).await
}

/// Serves on a socket that is bound already, so that its errors come before a program calls itself ready.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve_on(
    listener: Listener,
    options: ServerOptions,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let endpoint = listener.endpoint().clone();
    let ServerOptions { image, runtime, version, grace } = options;
    let runtime = runtime.unwrap_or_else(|| Arc::new(runtime::NoPods::new(version)));
    // Cancelled one after the other. Where this future is dropped before its end, all of them are.
    let (stop, calls_end, cut) = (shutdown.child_token(), CancellationToken::new(), CancellationToken::new());
    let _guards = [&stop, &calls_end, &cut].map(|token| token.clone().drop_guard());
    let images = ImageServiceServer::new(image::ImageCalls::new(image, calls_end.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let runtime = RuntimeServiceServer::new(runtime::RuntimeCalls::new(runtime, calls_end.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let tasks = TaskTracker::new();
    let connections = Connections {
        served: CallRouter { images, runtime },
        tasks: tasks.clone(),
        shutdown: stop.clone(),
        cut: cut.clone(),
    };
    let accepting = connection::on_reactor(&listener)
        .map_err(|source| ServeError::Listen { endpoint: endpoint.clone(), source })?;
    tracing::info!(%endpoint, "serving");
    connections.accept(accepting, listener).await;
    tracing::info!(%endpoint, "no new calls; waiting for those in flight");
    tasks.close();
    if timeout(grace, tasks.wait()).await.is_err() {
        calls_end.cancel();
        if timeout(CLOSE_TIME, tasks.wait()).await.is_err() {
            cut.cancel();
            tasks.wait().await;
        }
    }
    tracing::info!(%endpoint, "stopped serving");
    Ok(())
}
