//! The admin endpoint: health, metrics and back-off of a process that goes on, over HTTP on a unix socket of its owner,
//! and, where that is wished, metrics and health alone over TCP. It asks the managers and decides nothing.
//! Commands that go on start it; `imagelet metrics` and `imagelet backoff` ask it.
//!
//! `GET /healthz`, `/livez`: the process answers. `GET /readyz`: the image service behind it does, too. `GET /metrics`.
//! `GET /backoff`, `POST /backoff/reset`: see `backoff`. `GET /gc`, `GET /gc/plan`, `POST /gc/collect`, `GET` and `POST /gc/containers`,
//! `POST /gc/room`, `POST /check`, `GET /names`,
//! `GET /status`, `GET /pins`, `POST /pins`, `POST /pins/remove`: see `gc`. `GET /pods`, `GET /pods/{namespace}/{name}`,
//! `GET /events`, `GET /node`: see `pod_routes`. The socket of the store is another one: see `engine`.

pub mod backoff;
pub mod client;
mod collecting;
pub mod engine;
mod engine_wire;
mod exposition;
pub mod gc;
mod pod_routes;
pub mod pods;
mod process;
pub mod remote_store;
mod routes;
mod socket_path;
mod state;

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cri_api::ImageService;
use cri_grpc::server::{self, BindError, Listener};
use cri_grpc::{Endpoint, EndpointError};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use exposition::Form;
use state::Readiness;
pub use state::{Admin, NoEngine};

/// How long answers that are under way may take once everything ends.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The addresses of an admin endpoint.
#[derive(Clone, Debug)]
pub struct AdminAddress {
    /// The socket of the owner.
    pub socket: PathBuf,
    /// Listening on the socket must succeed.
    pub required: bool,
    /// Address of metrics and health for everybody.
    pub metrics: Option<SocketAddr>,
}

/// Why an admin endpoint does not listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}")]
pub struct ListenError {
    address: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl ListenError {
    /// The error `source` of listening on `address`.
    pub fn new(address: impl ToString, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { address: address.to_string(), source: source.into() }
    }
}

/// The endpoint of a unix socket.
pub fn socket_endpoint(path: &Path) -> Result<Endpoint, EndpointError> {
    let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Endpoint::parse(&format!("unix://{path}"))
}

impl Admin {
    /// Answers with the metrics that `register` puts in; ready while `service` answers, which is not the counted one.
    pub fn new(register: impl FnOnce(&mut Registry), service: Arc<dyn ImageService>) -> Self {
        Self::of(register, Readiness::Service(service))
    }

    /// A process that is not ready, for this reason, and has nothing else to answer from.
    pub fn waiting(why: &str) -> Self {
        Self::of(|_| {}, Readiness::Waiting(why.to_owned()))
    }

    fn of(register: impl FnOnce(&mut Registry), readiness: Readiness) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("imagelet_build", "The version that runs", Info::new(version));
        registry.register_collector(Box::new(process::Process));
        let stop = CancellationToken::new();
        let (manager, collection, pods, pulls, engine) = (None, None, None, None, None);
        Self { registry, readiness, manager, collection, pods, pulls, engine, beside_a_kubelet: false, stop }
    }

    /// Listens at these places, and answers until `stop` or its own end. A socket on which another process answers is left
    /// alone: with a line in the log where it is the default one, with a failure where it was asked for.
    pub async fn start(self, at: &AdminAddress, stop: &CancellationToken) -> Result<AdminServer, ListenError> {
        let stop = stop.child_token();
        let state = Arc::new(Self { stop: stop.clone(), ..self });
        let tasks = TaskTracker::new();
        let path = &at.socket;
        let socket = match bind(path).await {
            Ok(socket) => Some(socket),
            Err(error) if at.required => return Err(error),
            Err(error) => {
                let error = cri_api::Error::from_source(cri_api::Kind::Unavailable, &error);
                tracing::warn!(path = %path.display(), error = error.message(), "no admin endpoint");
                None
            }
        };
        let tcp = match at.metrics {
            None => None,
            Some(address) => Some(bind_tcp(address).await?),
        };
        if let Some(socket) = &socket {
            let listener = socket.try_clone().and_then(tokio::net::UnixListener::from_std);
            let listener = listener.map_err(|error| ListenError::new(path.display(), error))?;
            tasks.spawn(answer(listener, routes::all(Arc::clone(&state)), stop.clone()));
            tracing::debug!(path = %path.display(), "admin endpoint");
        }
        let address = tcp.as_ref().map(|(_, address)| *address);
        if let Some((listener, address)) = tcp {
            tasks.spawn(answer(listener, routes::public(Arc::clone(&state)), stop.clone()));
            tracing::info!(endpoint = %format_args!("http://{address}/metrics"), "metrics");
        }
        tasks.close();
        Ok(AdminServer { state, stop, tasks, tcp: address, _socket: socket })
    }
}

/// An admin endpoint that answers. Dropping it ends it at once.
pub struct AdminServer {
    state: Arc<Admin>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Where metrics are served to everybody.
    #[cfg_attr(not(test), expect(dead_code, reason = "the port that the system chose is for tests"))]
    tcp: Option<SocketAddr>,
    /// Takes the socket out of the file system when it is dropped.
    _socket: Option<Listener>,
}

impl AdminServer {
    /// The metrics of now in the text format of Prometheus, for another endpoint of the process.
    pub fn metrics(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let state = Arc::clone(&self.state);
        // Writing to a text does not fail.
        Arc::new(move || Form::Text.write(&state.registry, state.beside_a_kubelet).unwrap_or_default())
    }

    /// Takes no more questions, and comes back when those that were asked are answered.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Makes the socket, and its directory where that is missing; both are for their owner alone.
async fn bind(path: &Path) -> Result<Listener, ListenError> {
    let endpoint = socket_endpoint(path).map_err(|error| ListenError::new(path.display(), error))?;
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    let bound = tokio::task::spawn_blocking(move || {
        // What is there keeps its mode: it may be a directory for sockets of many.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|source| BindError::Io {
            operation: "create directory",
            path: directory,
            source,
        })?;
        server::bind_private(&endpoint)
    });
    match bound.await {
        Ok(bound) => bound.map_err(|error| ListenError::new(path.display(), error)),
        Err(_) => Err(ListenError::new(path.display(), "the task panicked")),
    }
}

async fn bind_tcp(address: SocketAddr) -> Result<(tokio::net::TcpListener, SocketAddr), ListenError> {
    let listener = tokio::net::TcpListener::bind(address).await;
    let bound = listener.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    bound.map_err(|error| ListenError::new(address, error))
}

/// Answers until it is stopped, and then no longer than [`CLOSE_TIME`].
async fn answer<L>(listener: L, routes: Router, stop: CancellationToken)
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    let end = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSE_TIME).await;
    };
    let serve = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        served = serve => if let Err(error) = served {
            tracing::warn!(%error, "the admin endpoint ended");
        },
        () = end => tracing::debug!("an admin connection was cut off"),
    }
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
