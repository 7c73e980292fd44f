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
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

pub use listener::{BindError, Listener, bind};
#[cfg(test)]
pub(crate) use runtime::batches;

use crate::pb::image_service_server::ImageServiceServer;
use crate::pb::runtime_service_server::RuntimeServiceServer;
use crate::{Endpoint, MAX_MESSAGE_BYTES};

/// Calls that one connection may have open. A pull holds its stream for minutes, and a client queues in silence what
/// is above; so the limit only stops a client that has gone wrong.
const MAX_STREAMS: u32 = 1024;
/// How long connections have to close once every call has ended.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// What is served, and how.
#[derive(Clone)]
pub struct ServerOptions {
    /// The images.
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
        /// Where.
        endpoint: Endpoint,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The transport gave up.
    #[error("serve on {endpoint}")]
    Transport {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Binds the endpoint and serves on it until `shutdown` is cancelled.
///
/// # Errors
/// See [`ServeError`]; after `shutdown` it ends without one.
pub async fn serve(endpoint: &Endpoint, options: ServerOptions, shutdown: CancellationToken) -> Result<(), ServeError> {
    let listener = bind(endpoint)?;
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
    // Cancelled one after the other: calls are told to end, then connections are cut.
    let (calls_end, cut) = (CancellationToken::new(), CancellationToken::new());
    let images = ImageServiceServer::new(image::ImageCalls::new(image, calls_end.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let runtime = RuntimeServiceServer::new(runtime::RuntimeCalls::new(runtime, calls_end.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let served = served::Served { images, runtime };
    let incoming = connection::incoming(listener, cut.clone())
        .map_err(|source| ServeError::Listen { endpoint: endpoint.clone(), source })?;
    let serving = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024)
        .serve_with_incoming_shutdown(served, incoming, shutdown.clone().cancelled_owned());
    tracing::info!(%endpoint, "serving");
    let stopping = async {
        shutdown.cancelled().await;
        tokio::time::sleep(grace).await;
        calls_end.cancel();
        tokio::time::sleep(CLOSE_TIME).await;
        cut.cancel();
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        result = serving => result,
        () = stopping => Ok(()),
    };
    // The transport's own tasks end with their connections; none may outlive this call.
    calls_end.cancel();
    cut.cancel();
    tracing::info!(%endpoint, "stopped serving");
    result.map_err(|source| ServeError::Transport { endpoint, source })
}
