//! The server side: any [`ImageService`] on a unix socket, as a kubelet, crictl or another imagelet expects it.
//!
//! All of ImageService. RuntimeService is a given runtime's, whose calls and answers pass unread; without one a stand-in answers
//! the calls of a connecting client, and reports that this server runs no pods: `Unimplemented` with a reason for the rest. A
//! call whose client disconnects is dropped at once, and with it the future of the service.

mod authority;
mod connection;
mod ending;
mod filtered;
mod hpack;
mod hpack_tables;
mod image;
mod inherited;
mod lingering;
mod listener;
mod runtime;
mod served;

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_api::ImageService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::HeaderValue;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use authority::fuzz::authority as fuzz_authority;
use connection::Connections;
use ending::Ending;
use served::CallRouter;

pub use inherited::{InheritError, inherited};
pub use listener::{BindError, Listener, SocketRemains, bind, bind_private};
#[cfg(test)]
pub(crate) use runtime::batches;

use crate::client::RuntimePassthrough;
use crate::pb::image_service_server::ImageServiceServer;
use crate::pb::runtime_service_server::RuntimeServiceServer;
use crate::{Endpoint, MAX_MESSAGE_BYTES};

/// How long short calls have to end once no new ones are taken. With [`CLOSE_TIME`] less than the kubelet waits for a
/// connection to answer (5 seconds), so that the next process answers in time.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How long connections have to close once every call has ended.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Services behind a server, and its limits.
#[derive(Clone)]
pub struct ServerOptions {
    /// The images that are served.
    pub image: Arc<dyn ImageService>,
    /// The runtime that calls for a runtime pass to; without one a stand-in answers that there are no pods.
    pub runtime: Option<RuntimePassthrough>,
    /// The version that the stand-in names.
    pub version: String,
    /// The socket of this process's own API. Answers about images name it, so that a client that is imagelet can ask there.
    pub admin_socket: Option<PathBuf>,
    /// How long everything continues after the order to stop while long calls are open: 10 seconds. See `ending` for the end of the
    /// other calls.
    pub grace: Duration,
}

impl ServerOptions {
    /// Only images, with the defaults.
    #[must_use]
    pub fn new(image: Arc<dyn ImageService>, version: impl Into<String>) -> Self {
        Self { image, runtime: None, version: version.into(), admin_socket: None, grace: Duration::from_secs(10) }
    }
}

/// Why serving ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The listening socket could not be handed to the reactor.
    #[error("listen on {endpoint}")]
    Listen {
        /// The endpoint of the socket.
        endpoint: Endpoint,
        /// Why the reactor refused it.
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

/// Serves on a socket that is bound already, so that bind errors are reported before a program calls itself ready.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve_on(
    listener: Listener,
    options: ServerOptions,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let endpoint = listener.endpoint().clone();
    let ServerOptions { image, runtime, version, admin_socket, grace } = options;
    // Cancelled one after the other. Where this future is dropped before its end, all of them are.
    let (ending, cut) = (Ending::default(), CancellationToken::new());
    let _guards = [&ending.closing, &ending.over, &cut].map(|token| token.clone().drop_guard());
    let images = ImageServiceServer::new(image::ImageCalls::new(image)).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let stand_in =
        RuntimeServiceServer::new(runtime::NoPods::new(version)).max_decoding_message_size(MAX_MESSAGE_BYTES);
    // A path with control characters is no value of a header.
    let admin_socket = admin_socket.and_then(|path| HeaderValue::from_bytes(path.as_os_str().as_bytes()).ok());
    let tasks = TaskTracker::new();
    let connections = Connections {
        served: CallRouter { images, stand_in, runtime, admin_socket, ending: ending.clone() },
        tasks: tasks.clone(),
        closing: ending.closing.clone(),
        cut: cut.clone(),
    };
    let accepting = connection::on_reactor(&listener)
        .map_err(|source| ServeError::Listen { endpoint: endpoint.clone(), source })?;
    tracing::info!(%endpoint, "serving");
    let drain = async {
        shutdown.cancelled().await;
        let calls = ending.open();
        tracing::info!(%endpoint, calls, "shutting down: long calls may be cancelled, others are completed");
        ending.drained(grace).await;
        ending.closing.cancel();
    };
    tokio::join!(connections.accept(accepting, listener), drain);
    tracing::info!(%endpoint, "no new calls");
    tasks.close();
    if timeout(LAST_CALLS, tasks.wait()).await.is_err() {
        ending.over.cancel();
        if timeout(CLOSE_TIME, tasks.wait()).await.is_err() {
            cut.cancel();
            tasks.wait().await;
        }
    }
    tracing::info!(%endpoint, "stopped serving");
    Ok(())
}
