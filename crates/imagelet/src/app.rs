//! [`App`]: the surroundings of a running command: configuration, printer, progress, the images that were asked for, and the
//! process that collects them. Does nothing with images.
//! Called by `main` and the commands.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use agent::admin::{Admin, Configuration, NoEngine};
use agent::collection::owner::Owner;
use agent::collection::{Collection, CollectionParts};
use agent::node::events::DebugRecorder;
use cluster::tokens::TokenManager;
use cri_api::{Image, ImageService, RuntimeService};
use engine_api::ImageEngine;
use image_manager::{EventRecorder, Hold, MakeRoom, Metrics, PullBoard, PullRecords, WantedBy, WatchedPulls};
use lock::{Mutex, RwLock};
use registry::Bandwidth;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::config::{Config, show};
use crate::config_source::ConfigSource;
use crate::endpoint::{admin_socket, connect_pod_runtime, parse_endpoint};
use crate::environment::Environment;
use crate::exit::{Failure, Outcome, chain};
use crate::images::{Images, Opening};
use crate::output::Printer;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::traces::Traces;
use crate::wiring::{self, Managed, ManagerParts, Mode};

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
    /// Somebody keeps back-off: a kubelet in front, or our own manager that tries again. Then a registry's wish to
    /// be left alone ends a pull with that error, and does not keep the place of others while it is waited out.
    pub(crate) backs_off: bool,
    /// The sockets that systemd passed, until somebody serves on them.
    sockets: Mutex<Vec<UnixListener>>,
    /// How the configuration is made again.
    source: Mutex<Option<ConfigSource>>,
    /// Guards the configuration in force, which a reload replaces.
    in_force: Arc<RwLock<Arc<Config>>>,
    /// The limit of bytes that all pulls of this process share.
    pub(crate) bandwidth: Bandwidth,
    /// The pulls of this process, for those who watch.
    pub(crate) board: PullBoard,
    /// The export of spans, where there is one.
    pub(crate) traces: Option<Traces>,
    /// How the command uses the root.
    access: Access,
    images: OnceCell<Images>,
    managed: OnceCell<Managed>,
    owner: OnceCell<Arc<Owner>>,
    records: OnceCell<(Arc<Metrics>, PullRecords)>,
    /// Tokens of an API server's service accounts.
    tokens: OnceCell<Arc<TokenManager>>,
}

/// The images of a moment.
pub(crate) struct ImagesNow {
    pub(crate) images: Vec<Image>,
    /// This process had to open the store.
    pub(crate) own: bool,
    /// An agent answers for them on the admin socket.
    pub(crate) agent: bool,
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
        access: Access,
    ) -> Self {
        let stop = signals.stop.clone();
        let in_force = Arc::new(RwLock::new(Arc::new(config.clone())));
        let bandwidth = Bandwidth::new(config.pulls.bandwidth);
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
            bandwidth,
            board: PullBoard::new(Arc::new(Instant::now), Arc::new(jiff::Timestamp::now)),
            traces: None,
            access,
            images: OnceCell::new(),
            managed: OnceCell::new(),
            owner: OnceCell::new(),
            records: OnceCell::new(),
            tokens: OnceCell::new(),
        }
    }

    /// Keeps the sockets that systemd passed.
    pub(crate) fn pass_sockets(&self, sockets: Vec<UnixListener>) {
        *self.sockets.lock() = sockets;
    }

    /// The sockets that systemd passed, once.
    pub(crate) fn passed_sockets(&self) -> Vec<UnixListener> {
        std::mem::take(&mut *self.sockets.lock())
    }

    /// Keeps how the configuration is made again.
    pub(crate) fn reloads_from(&self, source: ConfigSource) {
        *self.source.lock() = Some(source);
    }

    /// How the configuration is made again.
    pub(crate) fn source(&self) -> Option<ConfigSource> {
        self.source.lock().clone()
    }

    /// The configuration in force: the one of the start, until a reload replaces it.
    pub(crate) fn in_force(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.read())
    }

    /// Shows the configuration in force, for as long as somebody asks.
    pub(crate) fn configuration(&self) -> Configuration {
        let in_force = Arc::clone(&self.in_force);
        Arc::new(move || {
            let config = Arc::clone(&in_force.read());
            show::document(&config)
        })
    }

    /// Puts another configuration in force, for whoever asks.
    pub(crate) fn put_in_force(&self, config: Config) {
        *self.in_force.write() = Arc::new(config);
    }

    /// The images that the configuration means; where another process holds the embedded root, through that process.
    pub(crate) async fn images(&self) -> Outcome<&Images> {
        let open = async || {
            let images = self.open_images(None).await?;
            if images.is_without_store() {
                tracing::info!("there is no store in {}: no image was brought there", self.config.root.display());
            }
            Ok(images)
        };
        self.images.get_or_try_init(open).await
    }

    /// The images to serve on `socket`: others will find it in the lock of the root.
    pub(crate) async fn images_to_serve(&self, socket: PathBuf) -> Outcome<&Images> {
        self.images.get_or_try_init(|| self.open_images(Some(socket))).await
    }

    async fn open_images(&self, socket: Option<PathBuf>) -> Outcome<Images> {
        let opening = Opening {
            proxies: &self.environment.proxies,
            access: &self.access,
            backs_off: self.backs_off,
            bandwidth: &self.bandwidth,
            socket,
            stop: &self.stop,
        };
        let opened = Images::open(&self.config, opening).await;
        opened
            .map_err(|failure| if self.stop.is_cancelled() { failure.with_code(self.signals.code()) } else { failure })
    }

    /// The image service.
    pub(crate) async fn service(&self) -> Outcome<Arc<dyn ImageService>> {
        Ok(self.images().await?.service())
    }

    /// Gives the admin API its pulls, its images and the configuration. From now on, pulls that other processes ask of the store of this one are
    /// shown as well.
    pub(crate) async fn open_to_requests(&self, admin: &mut Admin) -> Outcome {
        let images = self.images().await?;
        let service: Arc<dyn ImageService> =
            Arc::new(WatchedPulls::new(images.service(), self.board.clone(), WantedBy::Command));
        images.answer_with(Arc::clone(&service));
        admin.engine = images.own_engine();
        admin.pulls = Some(self.board.clone());
        admin.images = Some(service);
        admin.configuration = Some(self.configuration());
        admin.secrets_directory.clone_from(&self.config.credentials.secrets_directory);
        Ok(())
    }

    /// The image service, with what is pinned marked as such.
    pub(crate) async fn marked_service(&self) -> Outcome<Arc<dyn ImageService>> {
        Ok(self.marked(self.images().await?).await)
    }

    /// The images as they are now, with what is pinned marked as such. A store that this process had to open for them is not kept open.
    pub(crate) async fn list_images_now(&self) -> Outcome<ImagesNow> {
        let images = self.open_images(None).await?;
        let own = images.has_store();
        let agent = images.collector(&admin_socket(&self.config)).await.is_some();
        let listed = self.marked(&images).await.list_images(None).await;
        images.close().await;
        Ok(ImagesNow { images: listed.map_err(|error| Failure::call("list images", &error))?, own, agent })
    }

    async fn marked(&self, images: &Images) -> Arc<dyn ImageService> {
        let service = images.service();
        let runtime = Err("nobody asked".to_owned());
        let parts = collection_parts(&self.config, images, Arc::clone(&service), runtime, Arc::new(DebugRecorder));
        match Collection::open(parts).await {
            Ok(collection) => Arc::new(collection.served(service, false)),
            Err(error) => {
                tracing::warn!(error = chain(&error), "what is pinned is not known");
                service
            }
        }
    }

    /// The image manager over the image service, made when it is first asked for.
    pub(crate) async fn managed(&self, events: Arc<dyn EventRecorder>, mode: Mode) -> Outcome<&Managed> {
        let make = async || self.new_manager(self.service().await?, events, mode).await;
        self.managed.get_or_try_init(make).await
    }

    /// An image manager over `service`, which tells its events to `events`.
    pub(crate) async fn new_manager(
        &self,
        service: Arc<dyn ImageService>,
        events: Arc<dyn EventRecorder>,
        mode: Mode,
    ) -> Outcome<Managed> {
        let (records, room) = match mode {
            Mode::Explain => (wiring::peek(&self.config).await?, None),
            Mode::OneShot | Mode::Agent => (self.records().await?.clone(), self.room().await),
        };
        let tokens = self.tokens.get().cloned();
        let board = self.board.clone();
        let parts = ManagerParts { service, events, records, room, tokens, board, mode };
        Managed::new(&self.config, &self.environment, parts).await
    }

    /// The image manager, if it was asked for.
    pub(crate) fn managed_already(&self) -> Option<&Managed> {
        self.managed.get()
    }

    /// The process that collects the images: this one, or the agent that has the root or the state of its collection.
    pub(crate) async fn owner(&self) -> Outcome<&Arc<Owner>> {
        self.owner.get_or_try_init(async || self.find_owner().await.map(Arc::new)).await
    }

    /// Makes room for a pull that runs out of space; `None` where that is not configured or nobody can.
    pub(crate) async fn room(&self) -> Option<Arc<dyn MakeRoom>> {
        if !self.config.gc.on_full_disk {
            return None;
        }
        match self.owner().await {
            Ok(owner) => Some(Arc::clone(owner) as Arc<dyn MakeRoom>),
            Err(failure) => {
                tracing::debug!(error = failure.lines().join("; "), "nobody makes room for pulls");
                None
            }
        }
    }

    /// Images that this command needs make no room for its pulls, as long as the answer lives.
    pub(crate) async fn hold(&self, images: impl Iterator<Item = &str>) -> Vec<Hold> {
        let Some(room) = self.room().await else { return Vec::new() };
        images.filter_map(|image| room.hold(image)).collect()
    }

    /// The pull records, and the metrics that count them.
    pub(crate) async fn records(&self) -> Outcome<&(Arc<Metrics>, PullRecords)> {
        self.records.get_or_try_init(|| wiring::records(&self.config)).await
    }

    async fn find_owner(&self) -> Outcome<Owner> {
        let socket = admin_socket(&self.config);
        let images = self.images().await?;
        if let Some(agent) = images.collector(&socket).await {
            return Ok(agent);
        }
        let records = if images.absent_root().is_some() { None } else { self.records_to_prune().await };
        let collection = self.open_collection(images, images.service(), None, Arc::new(DebugRecorder), records).await?;
        Ok(Owner::Here(Arc::new(collection)))
    }

    /// The collection of `images`, through `service`, which counts its calls in `operations`.
    pub(crate) async fn open_collection(
        &self,
        images: &Images,
        service: Arc<dyn ImageService>,
        operations: Option<Arc<Metrics>>,
        events: Arc<dyn EventRecorder>,
        records: Option<PullRecords>,
    ) -> Outcome<Collection> {
        let runtime = self.containers(images).await;
        let mut parts = collection_parts(&self.config, images, service, runtime, events);
        (parts.images.operations, parts.images.records) = (operations, records);
        Ok(Collection::open(parts).await?)
    }

    /// From now on this process collects, with this collection: for one that has more to tell of than a command.
    pub(crate) fn collects(&self, collection: Arc<Collection>) {
        if self.owner.set(Arc::new(Owner::Here(collection))).is_err() {
            tracing::debug!("somebody was found before who collects");
        }
    }

    /// From now on credential providers of pods of an API server get tokens from there.
    pub(crate) fn gets_tokens(&self, tokens: Arc<TokenManager>) {
        if self.tokens.set(tokens).is_err() {
            tracing::debug!("tokens come from an API server already");
        }
    }

    /// The pull records, which go with their images. Where they cannot be opened, for example since the disk is full, they
    /// stay: that keeps no image open for anybody.
    pub(crate) async fn records_to_prune(&self) -> Option<PullRecords> {
        match self.records().await {
            Ok((_, records)) => Some(records.clone()),
            Err(failure) => {
                tracing::warn!(error = failure.lines().join("; "), "records of removed images stay for now");
                None
            }
        }
    }

    /// The runtime that knows the containers: as for the kubelet, images and containers are behind one endpoint unless it is said
    /// otherwise. Nobody runs containers from the embedded store.
    async fn containers(&self, images: &Images) -> Result<Option<Arc<dyn RuntimeService>>, String> {
        let line = |failure: Failure| failure.lines().join("; ");
        let endpoint = match (&self.config.container_runtime_endpoint, images.endpoint()) {
            (Some(text), _) => parse_endpoint(text).map_err(line)?,
            (None, Some(endpoint)) => endpoint.clone(),
            (None, None) => return Ok(None),
        };
        connect_pod_runtime(&self.config, &endpoint).await.map(|(runtime, _)| Some(runtime)).map_err(line)
    }

    /// Images that were brought ahead of their use go last for a while. That they are there is what counts: where it cannot be
    /// written down, it is told and no more.
    pub(crate) async fn protect(&self, ids: impl IntoIterator<Item = &str>) {
        if self.config.gc.protect.is_zero() {
            return;
        }
        for id in ids {
            let protected = match self.owner().await {
                Ok(owner) => owner.protect(id).await.map_err(Failure::from),
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

    /// The calls that only a store of ours has, in this process or in the one that holds the root; `what` names the call.
    pub(crate) async fn engine(&self, what: &str) -> Outcome<Arc<dyn ImageEngine>> {
        let images = self.images().await?;
        let none = || NoEngine { what: what.to_owned(), endpoint: images.endpoint_text() };
        Ok(images.engine().ok_or_else(none)?)
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
                "not root: owners, device nodes and privileged attributes that cannot be created are recorded beside \
                 the layers; mount needs root"
            ),
            Some(false) => tracing::info!(
                "not root: layers are EROFS files, which keep owners, device nodes and attributes; ls, cat and cp read them, \
                 mount needs root"
            ),
        }
        Ok(())
    }

    /// Ends what goes on in the background; private directories of pulls are gone afterwards.
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

/// The parts of a collection of `images`, through `service`.
pub(crate) fn collection_parts(
    config: &Config,
    images: &Images,
    service: Arc<dyn ImageService>,
    runtime: Result<Option<Arc<dyn RuntimeService>>, String>,
    events: Arc<dyn EventRecorder>,
) -> CollectionParts {
    let endpoint = images.endpoint_text();
    let mut options = wiring::collection::of_images(config, &endpoint);
    options.engine = images.engine();
    options.facts = images.facts();
    if let Some(directory) = images.absent_root() {
        options.directory = None;
        options.pressure.node_directory = Some(directory.to_owned());
    }
    let containers = wiring::collection::of_containers(config);
    CollectionParts { service, endpoint, runtime, events, images: options, containers, pods: None }
}
