//! What a running command has at hand: configuration, printer, progress, and the image service that was asked for: the
//! embedded engine, a remote endpoint, or the agent that holds the root. Decides which; does nothing with images.
//! Called by `main` and the commands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{ImageService, RuntimeService};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteImageService, connect_image_service, connect_runtime_service};
use image_manager::{EventRecorder, EventRef, Hold, MakeRoom, Metrics, PullRecords};
use image_service::{Engine, EngineOptions, OpenError, StoreOpenError};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::admin::Places;
use crate::collection::owner::Owner;
use crate::collection::{Collection, Parts};
use crate::config::{Config, Durability, LayerFormat, Sharing};
use crate::environment::Environment;
use crate::exit::{Code, Failure, Outcome, code_of};
use crate::output::Printer;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::wiring::{self, Managed, Mode};

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
    owner: OnceCell<Arc<Owner>>,
    records: OnceCell<(Arc<Metrics>, PullRecords)>,
}

/// Where the images are.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    /// In our own store.
    Embedded(Engine),
    /// Behind an endpoint.
    Remote {
        service: Arc<RemoteImageService>,
        endpoint: Endpoint,
        /// Whether it is an agent that has the embedded root.
        is_agent: bool,
    },
}

impl Backend {
    /// Where they are, as text; empty for the embedded store.
    pub(crate) fn endpoint(&self) -> String {
        match self {
            Self::Embedded(_) => String::new(),
            Self::Remote { endpoint, .. } => endpoint.to_string(),
        }
    }

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
        Self {
            environment,
            config,
            printer,
            progress,
            stop,
            signals,
            backs_off,
            backend: OnceCell::new(),
            managed: OnceCell::new(),
            owner: OnceCell::new(),
            records: OnceCell::new(),
        }
    }

    /// The images that the configuration means; where the embedded root is held by an agent, the agent's.
    pub(crate) async fn backend(&self) -> Outcome<&Backend> {
        let open = async || {
            if let Some(endpoint) = &self.config.image_service_endpoint {
                return self.remote(parse_endpoint(endpoint)?, false).await;
            }
            match Engine::open(self.engine_options(None)).await {
                Ok(engine) => Ok(Backend::Embedded(engine)),
                Err(OpenError::Store(StoreOpenError::Held { root, pid, socket: Some(socket) })) => {
                    let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
                    let (root, shown) = (root.display(), socket.display());
                    tracing::info!("{root} is held by process {pid}; going on through its socket {shown}");
                    self.remote(parse_endpoint(&format!("unix://{}", encoded(&socket)))?, true).await
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

    /// The image service, with what is pinned marked as such. An agent marks it itself.
    pub(crate) async fn marked_service(&self) -> Outcome<Arc<dyn ImageService>> {
        let backend = self.backend().await?;
        if let Backend::Remote { is_agent: true, .. } = backend {
            return Ok(backend.service());
        }
        let parts = Parts {
            service: backend.service(),
            endpoint: backend.endpoint(),
            runtime: Err("nobody asked".to_owned()),
            events: Arc::new(Unheard),
            records: None,
            pods: None,
        };
        match Collection::open(&self.config, parts).await {
            Ok(collection) => Ok(Arc::new(collection.served(backend.service(), false))),
            Err(failure) => {
                tracing::warn!("what is pinned is not known: {}", failure.lines().join("; "));
                Ok(backend.service())
            }
        }
    }

    /// The image manager over the image service, made when it is first asked for.
    pub(crate) async fn managed(&self, events: Arc<dyn EventRecorder>, mode: Mode) -> Outcome<&Managed> {
        let make = async || Managed::new(self, self.service().await?, events, mode).await;
        self.managed.get_or_try_init(make).await
    }

    /// The image manager, if it was asked for.
    pub(crate) fn managed_already(&self) -> Option<&Managed> {
        self.managed.get()
    }

    /// Who collects the images: this process, or the agent that has the root or the state of its collection.
    pub(crate) async fn owner(&self) -> Outcome<&Arc<Owner>> {
        self.owner.get_or_try_init(async || self.find_owner().await.map(Arc::new)).await
    }

    /// Who makes room for a pull that runs out of space, where that is wished and somebody can.
    pub(crate) async fn room(&self) -> Option<Arc<dyn MakeRoom>> {
        if !self.config.gc.on_full_disk {
            return None;
        }
        match self.owner().await {
            Ok(owner) => Some(Arc::clone(owner) as Arc<dyn MakeRoom>),
            Err(failure) => {
                tracing::debug!("nobody makes room for pulls: {}", failure.lines().join("; "));
                None
            }
        }
    }

    /// Images that this command needs make no room for its pulls, as long as the answer lives.
    pub(crate) async fn hold(&self, images: impl Iterator<Item = &str>) -> Vec<Hold> {
        let Some(room) = self.room().await else { return Vec::new() };
        images.filter_map(|image| room.hold(image)).collect()
    }

    /// Who pulled what, and where that is counted.
    pub(crate) async fn records(&self) -> Outcome<&(Arc<Metrics>, PullRecords)> {
        self.records.get_or_try_init(|| wiring::records(&self.config)).await
    }

    async fn find_owner(&self) -> Outcome<Owner> {
        let socket = Places::of(&self.config).socket;
        let backend = match self.backend().await {
            Ok(Backend::Remote { is_agent: true, .. }) => return Owner::of_root(&socket).await,
            Ok(backend) => backend,
            // A command that goes on, such as `ensure --wait`, serves no images and answers all the same.
            Err(failure) => {
                let embedded = self.config.image_service_endpoint.is_none();
                if embedded && tokio::net::UnixStream::connect(&socket).await.is_ok() {
                    return Owner::of_root(&socket).await;
                }
                return Err(failure);
            }
        };
        if let Backend::Remote { endpoint, .. } = backend
            && let Some(agent) = Owner::of_endpoint(&socket, &endpoint.to_string()).await
        {
            return Ok(agent);
        }
        let records = self.records_to_prune().await;
        let collection = self.open_collection(backend, backend.service(), Arc::new(Unheard), records).await?;
        Ok(Owner::Here(Arc::new(collection)))
    }

    /// The collection of the images in `backend`, through `service`.
    pub(crate) async fn open_collection(
        &self,
        backend: &Backend,
        service: Arc<dyn ImageService>,
        events: Arc<dyn EventRecorder>,
        records: Option<PullRecords>,
    ) -> Outcome<Collection> {
        let (endpoint, runtime) = (backend.endpoint(), self.containers(backend).await);
        Collection::open(&self.config, Parts { service, endpoint, runtime, events, records, pods: None }).await
    }

    /// From now on this process collects, with this collection: for one that has more to tell of than a command.
    pub(crate) fn collects(&self, collection: Arc<Collection>) {
        if self.owner.set(Arc::new(Owner::Here(collection))).is_err() {
            tracing::debug!("somebody was found before who collects");
        }
    }

    /// The pull records, which go with their images. Where they cannot be opened, for example since the disk is full, they
    /// stay: that keeps no image open for anybody.
    pub(crate) async fn records_to_prune(&self) -> Option<PullRecords> {
        match self.records().await {
            Ok((_, records)) => Some(records.clone()),
            Err(failure) => {
                tracing::warn!("records of removed images stay for now: {}", failure.lines().join("; "));
                None
            }
        }
    }

    /// Who knows the containers: as for the kubelet, images and containers are behind one endpoint unless it is said
    /// otherwise. Nobody runs containers from the embedded store.
    async fn containers(&self, backend: &Backend) -> Result<Option<Arc<dyn RuntimeService>>, String> {
        let endpoint = match (&self.config.container_runtime_endpoint, backend) {
            (Some(text), _) => parse_endpoint(text).map_err(|failure| failure.lines().join("; "))?,
            (None, Backend::Remote { endpoint, .. }) => endpoint.clone(),
            (None, Backend::Embedded(_)) => return Ok(None),
        };
        let runtime = connect_runtime_service(&endpoint, self.client_options()).await;
        let runtime = runtime.map_err(|error| crate::exit::chain(&error))?;
        let version = runtime.version().await.map_err(|error| format!("{endpoint}: {}", error.message()))?;
        // Ours answers so where nobody stands behind it.
        if version.runtime_name == "imagelet" {
            return Err(format!("{endpoint} serves images and runs no pods"));
        }
        Ok(Some(Arc::new(runtime)))
    }

    /// Images that were brought ahead of their use go last for a while. That they are there is what counts: where it cannot be
    /// written down, it is told and no more.
    pub(crate) async fn protect(&self, ids: impl IntoIterator<Item = &str>) {
        if self.config.gc.protect.is_zero() {
            return;
        }
        for id in ids {
            let protected = match self.owner().await {
                Ok(owner) => owner.protect(id).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = protected {
                tracing::warn!("{id} is not protected from collection: {}", failure.lines().join("; "));
                return;
            }
        }
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
                return self.remote(parse_endpoint(endpoint)?, false).await;
            }
            let engine = Engine::open(self.engine_options(Some(socket))).await.map_err(|e| open_failure(&e))?;
            Ok(Backend::Embedded(engine))
        };
        self.backend.get_or_try_init(open).await
    }

    /// One line for an ordinary user, before something is unpacked.
    pub(crate) fn note_unprivileged(&self, backend: &Backend) {
        let Backend::Embedded(engine) = backend else { return };
        if self.environment.privileged {
            return;
        }
        if engine.store().new_layers().format == image_service::LayerFormat::Dir {
            tracing::info!(
                "not root: owners, device nodes and privileged attributes that cannot be created are recorded beside \
                 the layers; mount needs root"
            );
        } else {
            tracing::info!(
                "not root: layers are EROFS files, which keep owners, device nodes and attributes; ls, cat and cp read them, \
                 mount needs root"
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
        if let Some((_, records)) = self.records.get() {
            records.settle().await;
        }
        if let Some(Backend::Embedded(engine)) = self.backend.get() {
            engine.shutdown().await;
        }
    }

    async fn remote(&self, endpoint: Endpoint, is_agent: bool) -> Outcome<Backend> {
        if let Some(warning) = endpoint.warning() {
            tracing::warn!("{warning}");
        }
        if let Some(policy) = &self.config.signature_policy
            && !is_agent
        {
            let policy = policy.display();
            tracing::warn!(
                "signaturePolicy {policy} is not looked at: {endpoint} pulls, and decides by its own policy"
            );
        }
        match connect_image_service(&endpoint, self.client_options()).await {
            Ok(service) => Ok(Backend::Remote { service: Arc::new(service), endpoint, is_agent }),
            Err(error) => Err(Failure::new(code_of(error.kind()), crate::exit::chain(&error))),
        }
    }

    fn engine_options(&self, agent_socket: Option<PathBuf>) -> EngineOptions {
        let config = &self.config;
        let mut options = EngineOptions {
            root: config.root.clone(),
            hosts_roots: config.registry_config_paths.clone(),
            allowed_targets: config.allowed_registry_targets.clone(),
            bandwidth: Some(config.pulls.bandwidth).filter(|rate| *rate > 0),
            platform: config.platform.clone(),
            max_parallel_layers: config.max_parallel_layers,
            memory: usize::try_from(config.pull_memory).unwrap_or(usize::MAX),
            check_disk_space: config.check_disk_space,
            keep_blobs: config.keep_blobs,
            shared_content: config.shared_content,
            resume: config.resume,
            signature_policy: config.signature_policy.clone(),
            user_agent: USER_AGENT.to_owned(),
            ..EngineOptions::default()
        };
        if !config.parallel_ranges {
            options.ranges = image_service::RangePolicy::off();
        }
        if self.backs_off {
            options.retry.max_retry_after = BRIEF;
        }
        options.store.agent_socket = agent_socket;
        options.store.durability = match config.durability {
            Durability::Full => image_service::Durability::Full,
            Durability::Relaxed => image_service::Durability::Relaxed,
        };
        options.store.sharing = match config.share_files {
            Sharing::Off => image_service::Sharing::Off,
            Sharing::Reflink => image_service::Sharing::Reflink,
            Sharing::Hardlink => image_service::Sharing::Hardlink,
        };
        options.store.layer_format = match config.layer_format {
            LayerFormat::Auto => image_service::LayerFormat::Auto,
            LayerFormat::Erofs => image_service::LayerFormat::Erofs,
            LayerFormat::Dir => image_service::LayerFormat::Dir,
        };
        let (limits, wanted) = (&mut options.store.limits, &config.limits);
        limits.layer_bytes = wanted.layer_bytes;
        limits.entries = wanted.layer_entries as u64;
        limits.path_depth = wanted.path_depth;
        limits.path_bytes = usize::try_from(wanted.path_bytes).unwrap_or(usize::MAX);
        // Checked to be at most 1 GiB.
        limits.pax_header_bytes = usize::try_from(wanted.header_bytes).unwrap_or(usize::MAX);
        limits.pax_record_bytes = limits.pax_record_bytes.min(limits.pax_header_bytes);
        limits.long_name_bytes = limits.long_name_bytes.min(limits.pax_header_bytes);
        options.limits = image_service::Limits {
            image_bytes: wanted.image_bytes,
            image_layers: wanted.image_layers,
            inflate_ratio: wanted.inflate_ratio as u64,
            inflate_free: options.limits.inflate_free,
            entries_free: options.limits.entries_free,
            manifest_bytes: wanted.manifest_bytes,
            config_bytes: wanted.config_bytes,
        };
        let proxies = &self.environment.proxies;
        options.proxy.http.clone_from(&proxies.http);
        options.proxy.https.clone_from(&proxies.https);
        options.proxy.no_proxy.clone_from(&proxies.no_proxy);
        options
    }
}

/// Events of a command go nowhere: what they would say is its answer.
struct Unheard;

impl EventRecorder for Unheard {
    fn record(&self, event: EventRef<'_>) {
        tracing::debug!(reason = event.reason, "{}", event.message);
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
        OpenError::Option { .. }
        | OpenError::SignaturePolicy(_)
        | OpenError::Store(StoreOpenError::NoSharing { .. }) => Code::Config,
        _ => Code::Failed,
    };
    Failure::new(code, crate::exit::chain(error))
}
