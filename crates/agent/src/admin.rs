//! The admin endpoint: the API of a long-running process, over HTTP on a unix socket, and, if configured, metrics and health alone
//! over TCP. It calls the managers and decides nothing. Long-running commands start it; other commands use it through [`client`](crate::api::client).
//!
//! A route is declared once (`table`), by the file of its topic: `pull_routes`, `image_routes`, `image_events`, `archive_routes`,
//! `store_routes`, `path_routes`, `ensure_routes`, `pod_routes`, `image_set_routes`, `collecting`, `routes`. `access` decides which clients may change state. The routes of
//! images and of the store are also served on the socket of a store: see [`store_server`].

mod access;
mod archive_routes;
pub mod backoff;
mod collecting;
mod ensure_routes;
mod exposition;
mod image_events;
mod image_routes;
mod image_set_routes;
pub mod image_sets;
pub mod images;
mod openapi;
mod path_routes;
mod pod_routes;
mod process;
mod pull_routes;
mod pull_stream;
pub mod pulls;
pub mod remote_store;
mod routes;
mod state;
mod store_routes;
pub mod store_server;
mod stream;
mod stream_quota;
mod table;

use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use cluster::kubelet_api::{Clients, Port};
use cri_api::ImageService;
use cri_api::engine::ImageEngine;
use cri_grpc::server::{self, BindError, Listener};
use cri_grpc::{Endpoint, EndpointError};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use access::group_id;
use access::{Caller, Callers};
use exposition::Form;
use state::Readiness;
pub use state::{Admin, Configuration, NoEngine};
use stream::AdminListener;
use stream_quota::StreamQuota;

/// How long answers that are under way may take once everything ends.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The addresses of an admin endpoint.
#[derive(Clone, Debug)]
pub struct AdminAddress {
    /// The socket of the owner.
    pub socket: PathBuf,
    /// Listening on the socket must succeed.
    pub required: bool,
    /// A group, by name or number, whose members may change things.
    pub group: Option<String>,
    /// Everyone who reaches the socket may read what holds no secret.
    pub others_read: bool,
    /// Address of metrics and health, open to every client.
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

/// The OpenAPI document of the API.
pub fn openapi_document() -> serde_json::Value {
    openapi::document(routes::table())
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

    /// A process that is ready while it runs, such as the controller of a fleet.
    pub fn running(register: impl FnOnce(&mut Registry)) -> Self {
        Self::of(register, Readiness::Running)
    }

    /// The parts behind the socket of a store.
    fn of_store(service: Arc<dyn ImageService>, engine: Arc<dyn ImageEngine>) -> Self {
        Self {
            images: Mutex::new(Some(Arc::clone(&service))),
            engine: Some(engine),
            logs_changes: false,
            streams: StreamQuota::unlimited(),
            ..Self::of(|_| {}, Readiness::Service(service))
        }
    }

    fn of(register: impl FnOnce(&mut Registry), readiness: Readiness) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("imagelet_build", "The version that runs", Info::new(version));
        registry.register_collector(Box::new(process::Process));
        let stop = CancellationToken::new();
        Self {
            registry,
            readiness,
            manager: None,
            collection: None,
            pods: None,
            pulls: None,
            images: Mutex::default(),
            image_sets: None,
            configuration: None,
            secrets_directory: None,
            engine: None,
            own_prefix: false,
            logs_changes: true,
            streams: StreamQuota::default(),
            stop,
        }
    }

    /// Listens at these places, and answers until `stop` or its own end. A socket on which another process answers is left
    /// alone: with a line in the log where it is the default one, with a failure where it was asked for.
    pub async fn start(self, at: &AdminAddress, stop: &CancellationToken) -> Result<AdminServer, ListenError> {
        let stop = stop.child_token();
        let state = Arc::new(Self { stop: stop.clone(), ..self });
        let tasks = TaskTracker::new();
        let path = &at.socket;
        let (socket, group) = match bind(at).await {
            Ok((socket, group)) => (Some(socket), group),
            Err(error) if at.required => return Err(error),
            Err(error) => {
                let error = cri_api::Error::from_source(cri_api::Kind::Unavailable, &error);
                tracing::warn!(path = %path.display(), error = error.message(), "no admin endpoint");
                (None, None)
            }
        };
        let tcp = match at.metrics {
            None => None,
            Some(address) => Some(listen_tcp(address).await?),
        };
        if let Some(socket) = &socket {
            let listener = socket.try_clone().and_then(tokio::net::UnixListener::from_std);
            let listener = listener.map_err(|error| ListenError::new(path.display(), error))?;
            let callers = Callers { owner: rustix::process::geteuid().as_raw(), group };
            let routes = routes::of_agent(Arc::clone(&state)).into_make_service_with_connect_info::<Caller>();
            let serve = axum::serve(AdminListener::new(listener, callers), routes);
            tasks.spawn(answer(
                serve.with_graceful_shutdown(stop.clone().cancelled_owned()).into_future(),
                stop.clone(),
            ));
            tracing::debug!(path = %path.display(), "admin endpoint");
        }
        let address = tcp.as_ref().map(Port::address);
        if let Some(port) = tcp {
            answer_on(port, &state, &tasks);
        }
        tasks.close();
        Ok(AdminServer { state, stop, tasks, tcp: address, _socket: socket })
    }

    /// Listens at this address alone, for metrics and health, and answers until `stop` or its own end.
    ///
    /// # Errors
    /// The address is not free.
    pub async fn start_metrics(self, at: SocketAddr, stop: &CancellationToken) -> Result<AdminServer, ListenError> {
        let port = listen_tcp(at).await?;
        let stop = stop.child_token();
        let state = Arc::new(Self { stop: stop.clone(), ..self });
        let (tasks, address) = (TaskTracker::new(), port.address());
        answer_on(port, &state, &tasks);
        tasks.close();
        Ok(AdminServer { state, stop, tasks, tcp: Some(address), _socket: None })
    }
}

/// Answers requests for metrics and health on this port until the process ends.
fn answer_on(port: Port, state: &Arc<Admin>, tasks: &TaskTracker) {
    tracing::info!(endpoint = %format_args!("http://{}/metrics", port.address()), "metrics");
    let (routes, stop) = (routes::public_alone(Arc::clone(state)), state.stop.clone());
    tasks.spawn(async move { port.run(&stop, move |_| TowerToHyperService::new(routes.clone())).await });
}

/// An admin endpoint that answers. Dropping it ends it at once.
pub struct AdminServer {
    state: Arc<Admin>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Address at which metrics are served to every client.
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
        Arc::new(move || Form::Text.write(&state.registry, state.own_prefix).unwrap_or_default())
    }

    /// Stops accepting requests, and returns when the open ones are answered.
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

/// Makes the socket, and its directory if that is missing. Both are for their owner alone, unless other users are to reach the socket.
async fn bind(at: &AdminAddress) -> Result<(Listener, Option<u32>), ListenError> {
    let path = at.socket.as_path();
    let endpoint = socket_endpoint(path).map_err(|error| ListenError::new(path.display(), error))?;
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    let (group, mode) = (at.group.clone(), socket_mode(at.group.is_some(), at.others_read));
    let bound = tokio::task::spawn_blocking(move || {
        let group = group.map(|name| group_id(&name)).transpose().map_err(|error| format!("adminGroup: {error}"))?;
        // An existing directory keeps its mode: other sockets may be in it.
        let directory_mode = if mode == OWN { 0o700 } else { 0o755 };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(directory_mode)
            .create(&directory)
            .map_err(|source| BindError::Io { operation: "create directory", path: directory, source })?;
        let listener = server::bind_private(&endpoint)?;
        // The socket is still private to its owner, so no other user can connect before the group is set.
        let failed = |operation: &'static str| {
            let path = endpoint.path().to_owned();
            move |source| BindError::Io { operation, path, source }
        };
        if group.is_some() {
            std::os::unix::fs::lchown(endpoint.path(), None, group).map_err(failed("give a group to"))?;
        }
        if mode != OWN {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(endpoint.path(), mode).map_err(failed("set the mode of"))?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((listener, group))
    });
    match bound.await {
        Ok(bound) => bound.map_err(|error| ListenError::new(path.display(), error)),
        Err(_) => Err(ListenError::new(path.display(), "the task panicked")),
    }
}

/// The mode of a socket for its owner alone.
const OWN: u32 = 0o600;

/// The mode of the socket.
fn socket_mode(has_group: bool, others_read: bool) -> u32 {
    match (has_group, others_read) {
        (_, true) => 0o666,
        (true, false) => 0o660,
        (false, false) => OWN,
    }
}

/// Listens for those who read metrics and health.
async fn listen_tcp(address: SocketAddr) -> Result<Port, ListenError> {
    let port = Port::listen("the metrics", address, None, Clients::Anonymous).await;
    port.map(|port| port.with_grace(CLOSE_TIME)).map_err(|error| ListenError::new(address, error))
}

/// Answers until it is stopped, and then no longer than [`CLOSE_TIME`].
async fn answer(serve: impl Future<Output = std::io::Result<()>>, stop: CancellationToken) {
    let end = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSE_TIME).await;
    };
    tokio::select! {
        served = serve => if let Err(error) = served {
            tracing::warn!(%error, "the admin endpoint ended");
        },
        () = end => tracing::debug!("an admin connection was cut off"),
    }
}

#[cfg(test)]
mod api_tests;
#[cfg(test)]
mod openapi_tests;
#[cfg(test)]
mod pods_tests;
#[cfg(test)]
mod schema_check;
#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
