//! [`App`]: the state of a running command: configuration, printer, progress, the requested images, and the process that collects them.
//! Does not process images itself. Called by `main` and the commands.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use agent::admin::{Admin, Configuration};
use agent::collection::{Collection, CollectionParts, Collects};
use agent::node::events::DebugRecorder;
use base::lock::{Mutex, RwLock};
use cluster::tokens::TokenManager;
use cri_api::engine::ImageEngine;
use cri_api::{Image, ImageService, RuntimeService};
use cri_grpc::Endpoint;
use image_manager::{
    EventRecorder, ImageHold, Metrics, NamespaceAccess, PullBoard, PullRecords, ReclaimSpace, SandboxImageLookup,
    WantedBy, WatchedPulls,
};
use image_service::PullEngineChoice;
use oci::ReferenceOrId;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::config::{Config, show};
use crate::config_source::ConfigSource;
use crate::endpoint::{connect_pod_runtime, parse_endpoint};
use crate::environment::Environment;
use crate::exit::{Failure, Outcome, chain};
use crate::follow::FollowedAgent;
use crate::images::{Images, Opening, PullNetwork};
use crate::manager::{self, Managed, ManagerParts, Mode};
use crate::output::Printer;
use crate::progress::Progress;
use crate::sandbox_image;
use crate::signals::Signals;
use crate::traces::Traces;

/// A running command's surroundings.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) environment: Environment,
    pub(crate) config: Config,
    pub(crate) printer: Printer,
    pub(crate) progress: Progress,
    /// Cancelled when the process is asked to end.
    pub(crate) stop: CancellationToken,
    /// The signal that asked the process to end.
    pub(crate) signals: Signals,
    /// True if the caller keeps back-off: a kubelet in front, or our own manager, which retries. Then a `Retry-After` of a registry ends
    /// the pull with that error. Waiting inside the pull would block a pull slot.
    pub(crate) backs_off: bool,
    /// The sockets that systemd passed, until a server takes them.
    sockets: Mutex<Vec<UnixListener>>,
    /// Source from which the configuration is loaded again.
    source: Mutex<Option<ConfigSource>>,
    /// Guards the configuration in force, which a reload replaces.
    in_force: Arc<RwLock<Arc<Config>>>,
    /// The limit and the count of bytes that all pulls of this process share.
    pub(crate) network: PullNetwork,
    /// The pulls of this process, for clients that watch them.
    pub(crate) board: PullBoard,
    /// The export of spans, if it is configured.
    pub(crate) traces: Option<Traces>,
    /// The agent whose images the command uses, although its user selected none.
    pub(crate) followed: Option<FollowedAgent>,
    /// Access of the command to the root.
    access: Access,
    images: OnceCell<Images>,
    managed: OnceCell<Managed>,
    /// The garbage collection that serves the commands of this process.
    collector: OnceCell<Arc<dyn Collects>>,
    /// The same, if it is this process.
    collection: OnceCell<Arc<Collection>>,
    records: OnceCell<(Arc<Metrics>, PullRecords)>,
    /// Images that namespaces may use by the cluster's ImageSets.
    pub(crate) namespace_access: NamespaceAccess,
    /// Tokens of an API server's service accounts.
    tokens: OnceCell<Arc<TokenManager>>,
}

/// A runtime, with its endpoint.
type RuntimeAt = (Endpoint, Arc<dyn RuntimeService>);

/// The images at one moment.
pub(crate) struct ImagesNow {
    pub(crate) images: Vec<Image>,
    /// True if this process had to open the store.
    pub(crate) own: bool,
    /// The admin socket of the agent that answers for them.
    pub(crate) agent: Option<PathBuf>,
}

impl App {
    /// Creates the state; opens nothing yet.
    pub(crate) fn new(
        environment: Environment,
        config: Config,
        printer: Printer,
        progress: Progress,
        signals: Signals,
        backs_off: bool,
        access: Access,
    ) -> Self {
        let stop = signals.stop.clone();
        let in_force = Arc::new(RwLock::new(Arc::new(config.clone())));
        let network = PullNetwork::new(config.pulls.bandwidth);
        Self {
            environment,
            config,
            printer,
            progress,
            stop,
            signals,
            backs_off,
            sockets: Mutex::default(),
            source: Mutex::default(),
            in_force,
            network,
            board: PullBoard::new(Arc::new(Instant::now), Arc::new(jiff::Timestamp::now)),
            traces: None,
            followed: None,
            access,
            images: OnceCell::new(),
            managed: OnceCell::new(),
            collector: OnceCell::new(),
            collection: OnceCell::new(),
            records: OnceCell::new(),
            namespace_access: NamespaceAccess::default(),
            tokens: OnceCell::new(),
        }
    }

    /// Keeps the sockets that systemd passed.
    pub(crate) fn pass_sockets(&self, sockets: Vec<UnixListener>) {
        *self.sockets.lock() = sockets;
    }

    /// Returns the sockets that systemd passed, once.
    pub(crate) fn passed_sockets(&self) -> Vec<UnixListener> {
        std::mem::take(&mut *self.sockets.lock())
    }

    /// Keeps the source from which the configuration is loaded again.
    pub(crate) fn reloads_from(&self, source: ConfigSource) {
        *self.source.lock() = Some(source);
    }

    /// Returns the source from which the configuration is loaded again.
    pub(crate) fn source(&self) -> Option<ConfigSource> {
        self.source.lock().clone()
    }

    /// Returns the configuration in force: that of the start, until a reload replaces it.
    pub(crate) fn in_force(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.read())
    }

    /// Returns a view of the configuration in force, which follows reloads.
    pub(crate) fn configuration(&self) -> Configuration {
        let in_force = Arc::clone(&self.in_force);
        Arc::new(move || {
            let config = Arc::clone(&in_force.read());
            show::document(&config)
        })
    }

    /// Replaces the configuration in force for all readers.
    pub(crate) fn put_in_force(&self, config: Config) {
        *self.in_force.write() = Arc::new(config);
    }

    /// Returns the images that the configuration selects; where another process holds the embedded root, through that process.
    pub(crate) async fn images(&self) -> Outcome<&Images> {
        let open = async || {
            let images = self.open_images(None).await?;
            if images.is_without_store() {
                tracing::info!("no store exists in {}, so that it has no images", self.config.root.display());
            }
            Ok(images)
        };
        self.images.get_or_try_init(open).await
    }

    /// Returns the images to serve on `socket`. The lock of the root names that socket to other processes.
    pub(crate) async fn images_to_serve(&self, socket: PathBuf) -> Outcome<&Images> {
        self.images.get_or_try_init(|| self.open_images(Some(socket))).await
    }

    /// Returns the engine that pulls images for the runtime behind `endpoint`, whatever the configuration has images from.
    pub(crate) async fn pull_engine_of(&self, endpoint: &Endpoint) -> Outcome<Option<PullEngineChoice>> {
        let config = Config { image_service_endpoint: Some(endpoint.to_string()), ..self.config.clone() };
        let images = Images::open(&config, self.opening(None)).await?;
        let choice = images.pull_engine().await;
        images.close().await;
        choice.map_err(|error| Failure::call(format!("find the pull engine of {endpoint}"), &error))
    }

    fn opening(&self, socket: Option<PathBuf>) -> Opening<'_> {
        Opening {
            proxies: &self.environment.proxies,
            access: &self.access,
            backs_off: self.backs_off,
            network: &self.network,
            socket,
            stop: &self.stop,
        }
    }

    async fn open_images(&self, socket: Option<PathBuf>) -> Outcome<Images> {
        if let Some(agent) = &self.followed {
            agent.log();
        }
        let opened = Images::open(&self.config, self.opening(socket)).await;
        opened
            .map_err(|failure| if self.stop.is_cancelled() { failure.with_code(self.signals.code()) } else { failure })
    }

    /// Returns the image service.
    pub(crate) async fn service(&self) -> Outcome<Arc<dyn ImageService>> {
        Ok(self.images().await?.service())
    }

    /// Gives the admin API its pulls, its images and the configuration. From now on, pulls that other processes request from the store of
    /// this process are shown as well.
    pub(crate) async fn open_to_requests(&self, admin: &mut Admin) -> Outcome {
        let images = self.images().await?;
        let service: Arc<dyn ImageService> =
            Arc::new(WatchedPulls::new(images.service(), self.board.clone(), WantedBy::Command));
        images.answer_with(Arc::clone(&service));
        admin.engine = images.own_engine();
        admin.pulls = Some(self.board.clone());
        *admin.images.lock() = Some(service);
        admin.configuration = Some(self.configuration());
        admin.own_prefix = self.config.metrics_prefix.is_own(false);
        admin.secrets_directory.clone_from(&self.config.credentials.secrets_directory);
        Ok(())
    }

    /// Returns the image service, which marks pinned images as such.
    pub(crate) async fn marked_service(&self) -> Outcome<Arc<dyn ImageService>> {
        Ok(self.marked(self.images().await?).await)
    }

    /// Lists the current images, with pinned ones marked. A store that this process had to open for the list is closed again.
    pub(crate) async fn list_images_now(&self) -> Outcome<ImagesNow> {
        let images = self.open_images(None).await?;
        let own = images.has_store();
        let agent = images.collector(&self.config, &self.environment).await.map(|(_, socket)| socket);
        let listed = self.marked(&images).await.list_images(None).await;
        images.close().await;
        Ok(ImagesNow { images: listed.map_err(|error| Failure::call("list images", &error))?, own, agent })
    }

    async fn marked(&self, images: &Images) -> Arc<dyn ImageService> {
        let service = images.service();
        let runtime = Err("not asked".to_owned());
        let parts = collection_parts(&self.config, images, Arc::clone(&service), runtime, Arc::new(DebugRecorder));
        match Collection::open(parts).await {
            Ok(collection) => Arc::new(collection.served(service, false)),
            Err(error) => {
                tracing::warn!(error = chain(&error), "what is pinned is not known");
                service
            }
        }
    }

    /// Returns the image manager over the image service, which is made on first use.
    pub(crate) async fn managed(&self, events: Arc<dyn EventRecorder>, mode: Mode) -> Outcome<&Managed> {
        let make = async || self.new_manager(self.service().await?, events, mode).await;
        self.managed.get_or_try_init(make).await
    }

    /// Makes an image manager over `service`, which records its events in `events`.
    pub(crate) async fn new_manager(
        &self,
        service: Arc<dyn ImageService>,
        events: Arc<dyn EventRecorder>,
        mode: Mode,
    ) -> Outcome<Managed> {
        let (records, room) = match mode {
            Mode::Explain => (manager::peek(&self.config).await?, None),
            Mode::OneShot | Mode::Agent | Mode::ImageSets => (self.records().await?.clone(), self.room().await),
        };
        let tokens = self.tokens.get().cloned();
        let board = self.board.clone();
        let namespace_access = self.namespace_access.clone();
        let parts = ManagerParts { service, events, records, room, namespace_access, tokens, board, mode };
        Managed::new(&self.config, &self.environment, parts).await
    }

    /// Returns the image manager, if it was made already.
    pub(crate) fn managed_already(&self) -> Option<&Managed> {
        self.managed.get()
    }

    /// Returns the collection of the images: that of this process, or that of the agent that holds the root or the state of its collection.
    pub(crate) async fn collector(&self) -> Outcome<&Arc<dyn Collects>> {
        self.collector.get_or_try_init(async || self.find_collector().await).await
    }

    /// Returns the collection, if it is that of this process.
    pub(crate) async fn own_collection(&self) -> Option<Arc<Collection>> {
        self.collector().await.ok()?;
        self.collection.get().cloned()
    }

    /// Returns the service that frees space for a pull on a full disk; `None` if no process can collect.
    pub(crate) async fn room(&self) -> Option<Arc<dyn ReclaimSpace>> {
        match self.collector().await {
            Ok(collector) => Some(Arc::clone(collector) as Arc<dyn ReclaimSpace>),
            Err(failure) => {
                tracing::debug!(error = failure.lines().join("; "), "no process can free space for pulls");
                None
            }
        }
    }

    /// Protects images that this command needs from being removed for its own pulls, until the returned holds are dropped.
    pub(crate) async fn hold(&self, images: impl Iterator<Item = &str>) -> Vec<ImageHold> {
        let Some(room) = self.room().await else { return Vec::new() };
        images.filter_map(|image| room.hold(&ReferenceOrId::parse(image))).collect()
    }

    /// Returns the pull records, and the metrics that count them.
    pub(crate) async fn records(&self) -> Outcome<&(Arc<Metrics>, PullRecords)> {
        self.records.get_or_try_init(|| manager::records(&self.config)).await
    }

    async fn find_collector(&self) -> Outcome<Arc<dyn Collects>> {
        let images = self.images().await?;
        if let Some((agent, _)) = images.collector(&self.config, &self.environment).await {
            return Ok(Arc::new(agent));
        }
        let records = if images.absent_root().is_some() { None } else { self.records_to_prune().await };
        let collection = self.open_collection(images, images.service(), None, Arc::new(DebugRecorder), records).await?;
        let collection = Arc::new(collection);
        Ok(Arc::clone(self.collection.get_or_init(async || collection).await) as Arc<dyn Collects>)
    }

    /// Opens the collection of `images`, through `service`, which counts its calls in `operations`.
    pub(crate) async fn open_collection(
        &self,
        images: &Images,
        service: Arc<dyn ImageService>,
        operations: Option<Arc<Metrics>>,
        events: Arc<dyn EventRecorder>,
        records: Option<PullRecords>,
    ) -> Outcome<Collection> {
        let runtime = self.containers(images).await;
        let lookup = match &runtime {
            Ok(Some((endpoint, runtime))) => Some(self.sandbox_image_lookup(endpoint, runtime)),
            _ => None,
        };
        let runtime = runtime.map(|found| found.map(|(_, runtime)| runtime));
        let mut parts = collection_parts(&self.config, images, service, runtime, events);
        parts.images.sandbox_image_lookup = lookup;
        (parts.images.operations, parts.images.records) = (operations, records);
        Ok(Collection::open(parts).await?)
    }

    /// Makes this process the collector, with this collection, for processes that report more than a command does.
    pub(crate) fn collects(&self, collection: Arc<Collection>) {
        if self.collector.set(Arc::clone(&collection) as Arc<dyn Collects>).is_err()
            || self.collection.set(collection).is_err()
        {
            tracing::debug!("a collection is already set");
        }
    }

    /// Takes tokens for credential providers of an API server's pods from `tokens` from now on.
    pub(crate) fn gets_tokens(&self, tokens: Arc<TokenManager>) {
        if self.tokens.set(tokens).is_err() {
            tracing::debug!("tokens come from an API server already");
        }
    }

    /// Returns the pull records, which are removed together with their images. If they cannot be opened, for example because the disk is
    /// full, they stay. A remaining record gives no pod additional access.
    pub(crate) async fn records_to_prune(&self) -> Option<PullRecords> {
        match self.records().await {
            Ok((_, records)) => Some(records.clone()),
            Err(failure) => {
                tracing::warn!(error = failure.lines().join("; "), "records of removed images stay for now");
                None
            }
        }
    }

    /// Returns a lookup of the sandbox image of the runtime behind `endpoint`, which follows reloads of the configuration.
    pub(crate) fn sandbox_image_lookup(
        &self,
        endpoint: &Endpoint,
        runtime: &Arc<dyn RuntimeService>,
    ) -> SandboxImageLookup {
        let in_force = Arc::clone(&self.in_force);
        let configured = move || in_force.read().gc.sandbox_image.clone();
        sandbox_image::lookup(configured, Arc::clone(runtime), endpoint.clone())
    }

    /// Returns the runtime that knows the containers, and its endpoint. As for the kubelet, images and containers are behind one endpoint
    /// unless configured otherwise. No containers run from the embedded store.
    async fn containers(&self, images: &Images) -> Result<Option<RuntimeAt>, String> {
        let line = |failure: Failure| failure.lines().join("; ");
        let endpoint = match (&self.config.container_runtime_endpoint, images.endpoint()) {
            (Some(text), _) => parse_endpoint(text).map_err(line)?,
            (None, Some(endpoint)) => endpoint.clone(),
            (None, None) => return Ok(None),
        };
        let (runtime, _) = connect_pod_runtime(&self.config, &endpoint).await.map_err(line)?;
        Ok(Some((endpoint, runtime)))
    }

    /// Protects images that were pulled ahead of their use from collection for a while. The pull has succeeded already, so a protection
    /// that cannot be recorded is only logged.
    pub(crate) async fn protect(&self, ids: impl IntoIterator<Item = &str>) {
        for id in ids {
            let protected = match self.collector().await {
                Ok(collector) => collector.protect(id).await.map_err(Failure::from),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = protected {
                tracing::warn!(
                    image = id,
                    error = failure.lines().join("; "),
                    "image is not protected from collection"
                );
                return;
            }
        }
    }

    /// Returns the calls that only a store of ours has, in this process or in the one that holds the root; `what` names the call.
    pub(crate) async fn engine(&self, what: &str) -> Outcome<Arc<dyn ImageEngine>> {
        match self.images().await?.engine() {
            Some(engine) => Ok(engine),
            None => Err(self.no_engine(what).await),
        }
    }

    /// Returns the failure of a call that only a store of ours has, and what to use instead.
    pub(crate) async fn no_engine(&self, what: &str) -> Failure {
        match self.images().await {
            Ok(images) => images.no_engine(&self.config, &self.environment.default_root(), what).await,
            Err(failure) => failure,
        }
    }

    /// Logs a line for an ordinary user, before something is unpacked in this process.
    pub(crate) async fn note_unprivileged(&self) -> Outcome {
        let images = self.images().await?;
        if self.environment.privileged {
            return Ok(());
        }
        match images.unpacks_directories() {
            None => {}
            Some(true) => tracing::info!(
                "not root: owners, device nodes and privileged attributes that cannot be created are recorded next to \
                 the layers; mount needs root"
            ),
            Some(false) => tracing::info!(
                "not root: layers are EROFS files, which keep owners, device nodes and attributes; ls, cat and cp read them, \
                 mount needs root"
            ),
        }
        Ok(())
    }

    /// Ends background work; private directories of pulls are removed afterwards.
    pub(crate) async fn close(&self) {
        if let Some(managed) = self.managed.get() {
            managed.shutdown().await;
        }
        if let Some((_, records)) = self.records.get() {
            records.settle().await;
        }
        if let Some(images) = self.images.get() {
            images.close().await;
        }
    }
}

/// Returns the parts of a collection of `images`, through `service`.
pub(crate) fn collection_parts(
    config: &Config,
    images: &Images,
    service: Arc<dyn ImageService>,
    runtime: Result<Option<Arc<dyn RuntimeService>>, String>,
    events: Arc<dyn EventRecorder>,
) -> CollectionParts {
    let endpoint = images.endpoint_text();
    let mut options = manager::collection::of_images(config, &endpoint);
    options.engine = images.engine();
    options.facts = images.facts();
    options.runtime_pins = images.runtime_pins();
    if let Some(directory) = images.absent_root() {
        options.directory = None;
        options.pressure.node_directory = Some(directory.to_owned());
    }
    let containers = manager::collection::of_containers(config);
    CollectionParts { service, endpoint, runtime, events, images: options, containers, pods: None }
}
