//! The admin endpoint: health, metrics and back-off of a process that goes on, over HTTP on a unix socket of its owner,
//! and, where that is wished, metrics and health alone over TCP. It asks the managers and decides nothing.
//! Commands that go on start it; `imagelet metrics` and `imagelet backoff` ask it.
//!
//! `GET /healthz`, `/livez`: the process answers. `GET /readyz`: the image service behind it does, too. `GET /metrics`.
//! `GET /backoff`, `POST /backoff/reset`: see [`backoff`]. `GET /gc`, `GET /gc/plan`, `POST /gc/collect`, `GET` and `POST /gc/containers`,
//! `POST /gc/room`, `POST /check`, `GET /names`,
//! `GET /status`, `GET /pins`, `POST /pins`, `POST /pins/remove`: see [`gc`]. `GET /pods`, `GET /pods/{namespace}/{name}`,
//! `GET /events`, `GET /node`: see [`pod_routes`]. `POST /engine`: see [`engine`].

pub(crate) mod backoff;
pub(crate) mod client;
mod collecting;
mod engine;
pub(crate) mod engine_client;
mod engine_wire;
mod exposition;
pub(crate) mod gc;
mod pod_routes;
pub(crate) mod pods;
mod process;
mod routes;
mod state;

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::server::{self, BindError, Listener};
use engine_api::ImageEngine;
use image_manager::ImageManager;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::collection::Collection;
use crate::config::Config;
use crate::endpoint::encoded;
use crate::exit::{Code, Failure, Outcome};

/// How long answers that are under way may take once everything ends.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Name of the socket in the root.
const SOCKET: &str = "admin.sock";

/// Where an admin endpoint is.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The socket of the owner.
    pub(crate) socket: PathBuf,
    /// The configuration names the socket, so listening on it must succeed.
    pub(crate) asked_for: bool,
    /// Where metrics and health are for everybody.
    pub(crate) tcp: Option<SocketAddr>,
}

impl Places {
    /// As configured, or in the root.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            socket: config.admin_socket.clone().unwrap_or_else(|| config.root.join(SOCKET)),
            asked_for: config.admin_socket.is_some(),
            tcp: config.metrics_address,
        }
    }
}

/// The parts that an admin endpoint answers from.
pub(crate) struct Admin {
    registry: Registry,
    service: Arc<dyn ImageService>,
    manager: Option<Arc<ImageManager>>,
    collection: Option<Arc<Collection>>,
    pods: Option<pods::PodBoard>,
    engine: Option<Arc<dyn ImageEngine>>,
    /// The thing that is waited for while the process is not ready.
    waiting: Option<String>,
}

impl Admin {
    /// Shows the metrics that `register` puts in, and whether `service` answers. It is asked at each look, so it is not
    /// the counted one.
    pub(crate) fn new(register: impl FnOnce(&mut Registry), service: Arc<dyn ImageService>) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("imagelet_build", "The version that runs", Info::new(version));
        registry.register_collector(Box::new(process::Process));
        Self { registry, service, manager: None, collection: None, pods: None, engine: None, waiting: None }
    }

    /// Of a process that is not ready, and why; it has nothing else to tell.
    pub(crate) fn waiting(why: &str) -> Self {
        let service = Arc::new(NotYet(why.to_owned()));
        Self { waiting: Some(why.to_owned()), ..Self::new(|_| {}, service) }
    }

    /// Shows the back-off of this manager as well.
    #[must_use]
    pub(crate) fn with_manager(self, manager: Arc<ImageManager>) -> Self {
        Self { manager: Some(manager), ..self }
    }

    /// Answers for garbage collection as well.
    #[must_use]
    pub(crate) fn with_collection(self, collection: Arc<Collection>) -> Self {
        Self { collection: Some(collection), ..self }
    }

    /// Answers for the store of this process as well, where it has one.
    #[must_use]
    pub(crate) fn with_engine(self, engine: Option<Arc<dyn ImageEngine>>) -> Self {
        Self { engine, ..self }
    }

    /// Tells of pods as well.
    #[must_use]
    pub(crate) fn with_pods(self, pods: pods::PodBoard) -> Self {
        Self { pods: Some(pods), ..self }
    }

    /// Listens at these places, and answers until `stop` or its own end. A socket on which another process answers is left
    /// alone: with a line in the log where it is the default one, with a failure where it was asked for.
    pub(crate) async fn start(self, places: &Places, stop: &CancellationToken) -> Outcome<Running> {
        let stop = stop.child_token();
        let Self { registry, service, manager, collection, pods, engine, waiting } = self;
        let state = Arc::new(state::State {
            registry,
            service,
            manager,
            collection,
            pods,
            engine,
            waiting,
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        let path = &places.socket;
        let socket = match bind(path).await {
            Ok(socket) => Some(socket),
            Err(failure) if places.asked_for => return Err(failure),
            Err(failure) => {
                tracing::warn!("no admin endpoint: {}", failure.lines().join("; "));
                None
            }
        };
        let tcp = match places.tcp {
            None => None,
            Some(address) => Some(bind_tcp(address).await?),
        };
        if let Some(socket) = &socket {
            let listener = socket.try_clone().and_then(tokio::net::UnixListener::from_std);
            let listener = listener.map_err(|error| failed(path, &error))?;
            tasks.spawn(answer(listener, routes::all(Arc::clone(&state)), stop.clone()));
            tracing::debug!("admin endpoint on {}", path.display());
        }
        let address = tcp.as_ref().map(|(_, address)| *address);
        if let Some((listener, address)) = tcp {
            tasks.spawn(answer(listener, routes::public(state), stop.clone()));
            tracing::info!("metrics on http://{address}/metrics");
        }
        tasks.close();
        Ok(Running { stop, tasks, tcp: address, _socket: socket })
    }
}

/// The images of a runtime that is not there yet.
struct NotYet(String);

impl NotYet {
    fn refuse<T>(&self) -> cri_api::Result<T> {
        Err(cri_api::Error::new(cri_api::Kind::Unavailable, self.0.clone()))
    }
}

#[async_trait]
impl ImageService for NotYet {
    async fn list_images(&self, _: Option<&ImageFilter>) -> cri_api::Result<Vec<Image>> {
        self.refuse()
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> cri_api::Result<ImageStatus> {
        self.refuse()
    }

    async fn pull_image(&self, _: PullImageRequest) -> cri_api::Result<String> {
        self.refuse()
    }

    async fn remove_image(&self, _: &ImageSpec) -> cri_api::Result<()> {
        self.refuse()
    }

    async fn image_fs_info(&self) -> cri_api::Result<FsInfo> {
        self.refuse()
    }
}

/// An admin endpoint that answers. Dropping it ends it at once.
pub(crate) struct Running {
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Where metrics are served to everybody.
    #[cfg_attr(not(test), expect(dead_code, reason = "the port that the system chose is for tests"))]
    tcp: Option<SocketAddr>,
    /// Takes the socket out of the file system when it is dropped.
    _socket: Option<Listener>,
}

impl Running {
    /// Takes no more questions, and comes back when those that were asked are answered.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Makes the socket, and its directory where that is missing; both are for their owner alone.
async fn bind(path: &Path) -> Outcome<Listener> {
    let endpoint = Endpoint::parse(&format!("unix://{}", encoded(path))).map_err(|error| failed(path, &error))?;
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
        Ok(bound) => bound.map_err(|error| failed(path, &error)),
        Err(_) => Err(Failure::failed(format!("listen on {}: the task panicked", path.display()))),
    }
}

async fn bind_tcp(address: SocketAddr) -> Outcome<(tokio::net::TcpListener, SocketAddr)> {
    let listener = tokio::net::TcpListener::bind(address).await;
    let bound = listener.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    bound.map_err(|error| failed(Path::new(&address.to_string()), &error))
}

/// A place on which nobody can listen. The permission to do so is told apart from everything else.
fn failed(place: &Path, error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let denied = causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied)
    });
    let code = if denied { Code::NotPermitted } else { Code::Failed };
    Failure::caused(code, format!("listen on {}", place.display()), error)
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
