//! What a running command has at hand: configuration, printer, progress, and the image service that was asked for: the
//! embedded engine, a remote endpoint, or the agent that holds the root. Decides which; does nothing with images.
//! Called by `main` and the commands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_api::ImageService;
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteImageService, connect_image_service};
use image_manager::EventRecorder;
use image_service::{Engine, EngineOptions, OpenError, StoreOpenError};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Durability};
use crate::environment::Environment;
use crate::exit::{Code, Failure, Outcome, code_of};
use crate::output::Printer;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::wiring::{Managed, Mode};

/// The name under which this program makes itself known to registries and runtimes.
pub(crate) const USER_AGENT: &str = concat!("imagelet/", env!("CARGO_PKG_VERSION"));

/// A `Retry-After` that is waited out within a pull although somebody would come again.
const BRIEF: Duration = Duration::from_secs(2);

/// A running command's surroundings.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) environment: Environment,
    pub(crate) config: Config,
    pub(crate) printer: Printer,
    pub(crate) progress: Progress,
    /// Cancelled when the process is asked to end.
    pub(crate) stop: CancellationToken,
    /// What asked it.
    pub(crate) signals: Signals,
    /// Whether somebody keeps back-off: a kubelet in front, or our own manager that tries again. Then a registry's wish to
    /// be left alone ends a pull with that error, and does not keep the place of others while it is waited out.
    pub(crate) backs_off: bool,
    backend: OnceCell<Backend>,
    managed: OnceCell<Managed>,
}

/// Where the images are.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    /// In our own store.
    Embedded(Engine),
    /// Behind an endpoint.
    Remote { service: Arc<RemoteImageService>, endpoint: Endpoint },
}

impl Backend {
    /// The images.
    pub(crate) fn service(&self) -> Arc<dyn ImageService> {
        match self {
            Self::Embedded(engine) => Arc::new(engine.clone()),
            Self::Remote { service, .. } => Arc::clone(service) as Arc<dyn ImageService>,
        }
    }
}

impl App {
    /// Nothing is opened yet.
    pub(crate) fn new(
        environment: Environment,
        config: Config,
        printer: Printer,
        progress: Progress,
        signals: Signals,
        backs_off: bool,
    ) -> Self {
        let stop = signals.stop.clone();
        let (backend, managed) = (OnceCell::new(), OnceCell::new());
        Self { environment, config, printer, progress, stop, signals, backs_off, backend, managed }
    }

    /// The images that the configuration means; where the embedded root is held by an agent, the agent's.
    pub(crate) async fn backend(&self) -> Outcome<&Backend> {
        let open = async || {
            if let Some(endpoint) = &self.config.image_service_endpoint {
                return self.remote(parse_endpoint(endpoint)?).await;
            }
            match Engine::open(self.engine_options(None)).await {
                Ok(engine) => Ok(Backend::Embedded(engine)),
                Err(OpenError::Store(StoreOpenError::Held { root, pid, socket: Some(socket) })) => {
                    let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
                    let (root, shown) = (root.display(), socket.display());
                    tracing::info!("{root} is held by process {pid}; going on through its socket {shown}");
                    self.remote(parse_endpoint(&format!("unix://{}", encoded(&socket)))?).await
                }
                Err(error) => Err(open_failure(&error)),
            }
        };
        self.backend.get_or_try_init(open).await
    }

    /// The image service.
    pub(crate) async fn service(&self) -> Outcome<Arc<dyn ImageService>> {
        Ok(self.backend().await?.service())
    }

    /// The image manager over the image service, made when it is first asked for.
    pub(crate) async fn managed(&self, events: Arc<dyn EventRecorder>, mode: Mode) -> Outcome<&Managed> {
        let make = async || Managed::new(self, self.service().await?, events, mode).await;
        self.managed.get_or_try_init(make).await
    }

    /// Our own engine, for what only it can do; `what` names that.
    pub(crate) async fn engine(&self, what: &str) -> Outcome<&Engine> {
        match self.backend().await? {
            Backend::Embedded(engine) => Ok(engine),
            Backend::Remote { endpoint, .. } => Err(Failure::failed(format!(
                "{what} works on the embedded store only, and the images are behind {endpoint}"
            ))),
        }
    }

    /// The images to serve on `socket`: others will find it in the lock of the root.
    pub(crate) async fn backend_to_serve(&self, socket: PathBuf) -> Outcome<&Backend> {
        let open = async || {
            if let Some(endpoint) = &self.config.image_service_endpoint {
                return self.remote(parse_endpoint(endpoint)?).await;
            }
            let engine = Engine::open(self.engine_options(Some(socket))).await.map_err(|e| open_failure(&e))?;
            Ok(Backend::Embedded(engine))
        };
        self.backend.get_or_try_init(open).await
    }

    /// One line for an ordinary user, before something is unpacked.
    pub(crate) fn note_unprivileged(&self, backend: &Backend) {
        if matches!(backend, Backend::Embedded(_)) && !self.environment.privileged {
            tracing::info!(
                "not root: owners, device nodes and privileged attributes that cannot be created are recorded beside \
                 the layers; mount needs root"
            );
        }
    }

    /// Settings of the client of a remote endpoint.
    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions {
            request_timeout: self.config.runtime_request_timeout,
            user_agent: USER_AGENT.to_owned(),
            ..ClientOptions::default()
        }
    }

    /// Ends what goes on in the background; private directories of pulls are gone afterwards.
    pub(crate) async fn close(&self) {
        if let Some(managed) = self.managed.get() {
            managed.shutdown().await;
        }
        if let Some(Backend::Embedded(engine)) = self.backend.get() {
            engine.shutdown().await;
        }
    }

    async fn remote(&self, endpoint: Endpoint) -> Outcome<Backend> {
        if let Some(warning) = endpoint.warning() {
            tracing::warn!("{warning}");
        }
        match connect_image_service(&endpoint, self.client_options()).await {
            Ok(service) => Ok(Backend::Remote { service: Arc::new(service), endpoint }),
            Err(error) => Err(Failure::new(code_of(error.kind()), crate::exit::chain(&error))),
        }
    }

    fn engine_options(&self, agent_socket: Option<PathBuf>) -> EngineOptions {
        let config = &self.config;
        let mut options = EngineOptions {
            root: config.root.clone(),
            hosts_roots: config.registry_config_paths.clone(),
            platform: config.platform.clone(),
            max_parallel_layers: config.max_parallel_layers,
            check_disk_space: config.check_disk_space,
            user_agent: USER_AGENT.to_owned(),
            ..EngineOptions::default()
        };
        options.max_layers = options.max_layers.max(config.max_parallel_layers);
        if self.backs_off {
            options.retry.max_retry_after = BRIEF;
        }
        options.store.agent_socket = agent_socket;
        options.store.durability = match config.durability {
            Durability::Full => image_service::Durability::Full,
            Durability::Relaxed => image_service::Durability::Relaxed,
        };
        let (limits, wanted) = (&mut options.store.limits, &config.limits);
        limits.layer_bytes = wanted.layer_bytes;
        limits.entries = wanted.layer_entries as u64;
        limits.path_depth = wanted.path_depth;
        // Checked to be at most 1 GiB.
        limits.pax_header_bytes = usize::try_from(wanted.header_bytes).unwrap_or(usize::MAX);
        limits.pax_record_bytes = limits.pax_record_bytes.min(limits.pax_header_bytes);
        let proxies = &self.environment.proxies;
        options.proxy.http.clone_from(&proxies.http);
        options.proxy.https.clone_from(&proxies.https);
        options.proxy.no_proxy.clone_from(&proxies.no_proxy);
        options
    }
}

/// An endpoint of the configuration. It was parsed once before; should it not parse now, that is told all the same.
pub(crate) fn parse_endpoint(text: &str) -> Outcome<Endpoint> {
    Endpoint::parse(text).map_err(|error| Failure::caused(Code::Config, format!("endpoint {text:?}"), &error))
}

/// A path as it stands in a URL.
pub(crate) fn encoded(path: &std::path::Path) -> String {
    let path = path.to_string_lossy();
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

/// A root that cannot be opened. The permission to do so is told apart from everything else.
fn open_failure(error: &OpenError) -> Failure {
    let code = match error {
        OpenError::Store(StoreOpenError::NotOwned { .. }) => Code::NotPermitted,
        OpenError::Store(StoreOpenError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Code::NotPermitted
        }
        OpenError::Option { .. } => Code::Config,
        _ => Code::Failed,
    };
    Failure::new(code, crate::exit::chain(error))
}
