//! [`Images`]: the images that a command refers to: in the embedded store, owned by this process or another one, or in a foreign
//! runtime. Decides that once; all other code sees the traits of `cri_api` and `image_service`. Does not process images itself. Called by
//! [`App`](crate::app::App).

mod agent_behind;
mod calls;
mod crio;
mod instead;
mod layer_form;
mod network;
mod nothing;
mod opening;
mod runtime;
mod shared_store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::collection::RemoteCollection;
use cri_api::engine::runtime_store::RuntimeImageFacts;
use cri_api::engine::{ImageEngine, ImageUsage, RuntimePins, UnfinishedPulls};
use cri_api::{ImageService, ImageSpec, ImageStatus, Kind};
use cri_grpc::Endpoint;
use image_service::{CrioIds, CrioImages, EngineOptions, PullEngineChoice, Registries, RuntimeImages};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::endpoint::{admin_socket, parse_endpoint};
use crate::environment::{Environment, Proxies};
use crate::exit::{Code, Failure, Outcome, chain};
use crate::follow::sockets;
use agent_behind::AgentBehind;
pub(crate) use layer_form::{BOOT_UNIT, UNIT_DIRECTORIES, is_enabled};
pub(crate) use network::PullNetwork;
use nothing::Nothing;
pub(crate) use opening::Opening;
use opening::{engine_options, open_failure, own_reach};
use runtime::Connected;
use shared_store::{SharedStore, SharedStoreError};

/// Images, and how they are reached.
pub(crate) struct Images {
    service: Arc<dyn ImageService>,
    /// The calls beyond CRI; `None` where a foreign runtime keeps the images.
    engine: Option<Arc<dyn ImageEngine>>,
    keeper: ImageKeeper,
    /// The nearest existing directory, if the root is missing and must not be created.
    absent_root: Option<PathBuf>,
    /// Images behind an endpoint that our engine may pull.
    runtime: Option<Arc<RuntimeImages>>,
    /// Pins in the runtime behind an endpoint.
    pins: Option<Arc<dyn RuntimePins>>,
    /// Images in our store and in the CRI-O that reads it.
    crio: Option<Arc<CrioImages>>,
    /// The agent that serves the images behind an endpoint.
    agent: Option<Arc<AgentBehind>>,
}

/// The component that keeps the images.
enum ImageKeeper {
    /// The embedded store.
    Store(Arc<SharedStore>),
    /// No store exists yet, and a query does not create one.
    Absent,
    /// A runtime, or an agent whose socket is configured as a runtime's.
    Runtime(Endpoint),
    /// The embedded store, and the CRI-O that reads it.
    Crio(Arc<SharedStore>, Endpoint),
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Images {
    /// Opens the images that the configuration names.
    pub(crate) async fn open(config: &Config, opening: Opening<'_>) -> Outcome<Self> {
        if let Some(endpoint) = &config.image_service_endpoint {
            let endpoint = parse_endpoint(endpoint)?;
            warn(&endpoint);
            if crio::is_behind(config, &endpoint, &opening).await? {
                let store = Arc::new(open_store(config, opening).await?);
                let crio = crio::connect(config, &endpoint, &store).await;
                if crio.is_err() {
                    store.close().await;
                }
                let crio = crio?;
                let keeper = ImageKeeper::Crio(store, endpoint);
                let service = Arc::clone(&crio) as _;
                let crio = Some(crio);
                return Ok(Self {
                    service,
                    engine: None,
                    keeper,
                    absent_root: None,
                    runtime: None,
                    pins: None,
                    crio,
                    agent: None,
                });
            }
            let Connected { service, runtime, pins, agent } = runtime::connect(config, &endpoint, &opening).await?;
            let absent_root = if opening.access.creates_store || opening.access.collects {
                None
            } else {
                nothing(&config.root).await.filter(|nothing| !nothing.has_root()).map(Nothing::into_directory)
            };
            return Ok(Self {
                service,
                engine: None,
                keeper: ImageKeeper::Runtime(endpoint),
                absent_root,
                runtime,
                pins,
                crio: None,
                agent,
            });
        }
        if !opening.access.creates_store
            && let Some(nothing) = nothing(&config.root).await
        {
            let images = Arc::new(nothing.clone());
            let engine = Some(Arc::clone(&images) as Arc<dyn ImageEngine>);
            let absent_root = Some(nothing.into_directory());
            return Ok(Self {
                service: images,
                engine,
                keeper: ImageKeeper::Absent,
                absent_root,
                runtime: None,
                pins: None,
                crio: None,
                agent: None,
            });
        }
        let store = Arc::new(open_store(config, opening).await?);
        let engine = Some(Arc::clone(&store) as Arc<dyn ImageEngine>);
        let service = Arc::clone(&store) as _;
        let keeper = ImageKeeper::Store(store);
        Ok(Self { service, engine, keeper, absent_root: None, runtime: None, pins: None, crio: None, agent: None })
    }

    /// Returns the CRI half.
    pub(crate) fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
    }

    /// Returns the calls beyond CRI; `None` if a foreign runtime keeps the images.
    pub(crate) fn engine(&self) -> Option<Arc<dyn ImageEngine>> {
        self.engine.clone()
    }

    /// Returns the calls beyond CRI of the embedded store, for the admin endpoint of this process.
    pub(crate) fn own_engine(&self) -> Option<Arc<dyn ImageEngine>> {
        match &self.keeper {
            ImageKeeper::Store(_) => self.engine.clone(),
            ImageKeeper::Crio(store, _) => Some(Arc::clone(store) as Arc<dyn ImageEngine>),
            ImageKeeper::Absent | ImageKeeper::Runtime(_) => None,
        }
    }

    /// Serves image requests of other processes with `service` from now on, if this process owns the embedded store.
    pub(crate) fn answer_with(&self, service: Arc<dyn ImageService>) {
        if let ImageKeeper::Store(store) | ImageKeeper::Crio(store, _) = &self.keeper {
            store.answer_with(service);
        }
    }

    /// Returns the endpoint of a runtime that keeps the images.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match &self.keeper {
            ImageKeeper::Store(_) | ImageKeeper::Absent => None,
            ImageKeeper::Runtime(endpoint) | ImageKeeper::Crio(_, endpoint) => Some(endpoint),
        }
    }

    /// Returns the endpoint of a runtime as text; empty for the embedded store.
    pub(crate) fn endpoint_text(&self) -> String {
        self.endpoint().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns true if an agent owns the store in the root of this command.
    pub(crate) fn are_served(&self) -> bool {
        matches!(&self.keeper, ImageKeeper::Store(store) if store.agent().is_some())
    }

    /// Returns the nearest existing directory, if the root is missing and must not be created.
    pub(crate) fn absent_root(&self) -> Option<&Path> {
        self.absent_root.as_deref()
    }

    /// Returns true if the embedded store is selected, but does not exist.
    pub(crate) fn is_without_store(&self) -> bool {
        matches!(self.keeper, ImageKeeper::Absent)
    }

    /// Returns true if this process owns the embedded store.
    pub(crate) fn has_store(&self) -> bool {
        matches!(&self.keeper, ImageKeeper::Store(store) if store.own().is_some())
    }

    /// Returns the other process that collects these images, and its admin socket; `None`: this process may collect.
    pub(crate) async fn collector(
        &self,
        config: &Config,
        environment: &Environment,
    ) -> Option<(RemoteCollection, PathBuf)> {
        let sockets = match &self.agent {
            Some(agent) => vec![agent.socket().to_owned()],
            None if self.endpoint().is_some() => sockets(config, environment),
            None => vec![admin_socket(config)],
        };
        for socket in sockets {
            if let Some(collector) = self.collector_on(&socket).await {
                return Some((collector, socket));
            }
        }
        None
    }

    async fn collector_on(&self, socket: &Path) -> Option<RemoteCollection> {
        match &self.keeper {
            ImageKeeper::Absent => None,
            // An owner that does not collect, such as a pull, leaves collection to other processes.
            ImageKeeper::Store(store) => match store.own() {
                Some(_) => None,
                None => {
                    // An agent with this store collects it, also in front of a CRI-O, whose images it collects as well.
                    let agent = match store.agent() {
                        Some(_) => RemoteCollection::of_agent(socket).await,
                        None => RemoteCollection::of_root(socket).await,
                    };
                    agent.inspect_err(|error| tracing::debug!(%error, "no agent collects")).ok()
                }
            },
            // The agent in front of a CRI-O collects.
            ImageKeeper::Crio(..) => None,
            ImageKeeper::Runtime(endpoint) => match &self.agent {
                Some(agent) => {
                    let remote = RemoteCollection::of_agent(socket).await;
                    remote.inspect_err(|error| tracing::info!("{agent} cannot be asked: {}", chain(error))).ok()
                }
                None => RemoteCollection::of_endpoint(socket, &endpoint.to_string()).await,
            },
        }
    }

    /// Returns true if layers become directory trees in this process; `None` if another process unpacks.
    pub(crate) fn unpacks_directories(&self) -> Option<bool> {
        match &self.keeper {
            ImageKeeper::Store(store) => Some(store.own()?.store().new_layers().format == store::LayerFormat::Dir),
            ImageKeeper::Absent | ImageKeeper::Runtime(_) | ImageKeeper::Crio(..) => None,
        }
    }

    /// Returns the verbose status of an image, including one that must not be used, if that is known.
    pub(crate) async fn inspect(&self, image: &ImageSpec) -> cri_api::Result<ImageStatus> {
        match &self.engine {
            Some(engine) => match optional(engine.inspect_image(image).await)? {
                Some(status) => Ok(status),
                None => self.service.image_status(image, true).await,
            },
            None => self.service.image_status(image, true).await,
        }
    }

    /// Returns the disk usage of an image, if it is known.
    pub(crate) async fn usage(&self, image: &ImageSpec) -> cri_api::Result<Option<ImageUsage>> {
        match &self.engine {
            Some(engine) => Ok(optional(engine.image_usage(image).await)?.flatten()),
            None => Ok(None),
        }
    }

    /// Returns the leftovers of interrupted pulls, if they are known.
    pub(crate) async fn unfinished(&self) -> cri_api::Result<Option<UnfinishedPulls>> {
        match &self.engine {
            Some(engine) => optional(engine.unfinished_pulls().await),
            None => Ok(None),
        }
    }

    /// Returns facts about the images behind an endpoint that CRI does not report; `None` if no runtime keeps them.
    pub(crate) fn facts(&self) -> Option<Arc<dyn RuntimeImageFacts>> {
        if let Some(crio) = &self.crio {
            return Some(Arc::clone(crio) as _);
        }
        if let Some(agent) = &self.agent {
            return Some(Arc::clone(agent) as _);
        }
        Some(Arc::clone(self.runtime.as_ref()?) as _)
    }

    /// Returns the pins in the runtime that keeps the images; `None` if no runtime keeps them, or if an agent serves them, which has pins of
    /// its own.
    pub(crate) fn runtime_pins(&self) -> Option<Arc<dyn RuntimePins>> {
        self.pins.clone()
    }

    /// Returns the engine that pulls images for the runtime behind the endpoint; `None` if no runtime keeps them.
    ///
    /// # Errors
    /// The runtime does not answer, so that either engine may be the one.
    pub(crate) async fn pull_engine(&self) -> cri_api::Result<Option<PullEngineChoice>> {
        match &self.runtime {
            Some(runtime) => runtime.choice().await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns true if pulls report which layers are missing: those of our engine, not those of a runtime.
    pub(crate) async fn reports_layers(&self) -> bool {
        match &self.keeper {
            ImageKeeper::Runtime(_) => matches!(self.pull_engine().await, Ok(Some(choice)) if choice.is_embedded),
            ImageKeeper::Store(_) | ImageKeeper::Absent | ImageKeeper::Crio(..) => true,
        }
    }

    /// Returns `service` with the image IDs that clients of the runtime expect.
    pub(crate) fn for_clients(&self, service: Arc<dyn ImageService>) -> Arc<dyn ImageService> {
        if self.crio.is_some() { Arc::new(CrioIds::new(service)) } else { service }
    }

    /// Releases the leftovers of pulls into a runtime's store, periodically until `stop`. For a long-running process.
    pub(crate) fn tend(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let (runtime, crio) = (self.runtime.clone(), self.crio.clone());
        async move {
            if let Some(crio) = crio {
                crio::tend(&crio, &stop).await;
            }
            if let Some(runtime) = runtime {
                runtime::tend(&runtime, &stop).await;
            }
        }
    }

    /// Ends background work of a store of this process.
    pub(crate) async fn close(&self) {
        if let Some(runtime) = &self.runtime {
            runtime.close().await;
        }
        if let ImageKeeper::Store(store) | ImageKeeper::Crio(store, _) = &self.keeper {
            store.close().await;
        }
    }
}

/// Opens the store in the root, or finds the process that owns it.
async fn open_store(config: &Config, opening: Opening<'_>) -> Outcome<SharedStore> {
    let Opening { proxies, access, backs_off, network, socket, stop } = opening;
    let mut options = engine_options(config, proxies, backs_off, network, socket);
    options.store.command = Some(access.command.clone());
    options.store.settings = Some(settings(&options));
    match SharedStore::open(options, access, stop).await {
        Ok(store) => {
            if let Some(agent) = store.agent().filter(|_| access.pulls) {
                own_reach(config, &agent)?;
            }
            Ok(store)
        }
        Err(SharedStoreError::Stopped) => Err(Failure::new(Code::Interrupted, SharedStoreError::Stopped.to_string())),
        Err(SharedStoreError::Open(error)) => Err(open_failure(&error)),
        Err(SharedStoreError::OtherVersion(error)) => Err(Failure::failed(error.message())),
    }
}

/// Returns the images of a root without a store.
async fn nothing(root: &Path) -> Option<Nothing> {
    let root = root.to_owned();
    tokio::task::spawn_blocking(move || Nothing::in_place_of(&root)).await.ok().flatten()
}

/// Returns a digest of all settings that decide which images are pulled and in what form: a process with an equal digest pulls as this one
/// would.
fn settings(options: &EngineOptions) -> String {
    let EngineOptions {
        root: _,
        hosts_roots,
        platform,
        max_parallel_layers: _,
        memory: _,
        store,
        limits,
        user_agent: _,
        retry: _,
        proxy,
        reach,
        ranges: _,
        bandwidth: _,
        traffic: _,
        allowed_targets,
        runtime_handlers,
        trust_present_digests,
        shared_content,
        keep_blobs,
        resume: _,
        signature_policy,
        // Irrelevant in a store of our own.
        unsupported_images: _,
        runtime: _,
        clock: _,
    } = options;
    let registries = (hosts_roots, allowed_targets, proxy, reach, signature_policy);
    let images = (platform, limits, runtime_handlers, trust_present_digests, shared_content, keep_blobs);
    let layers = (store.durability, &store.limits, store.layer_format, store.mounted_view.is_some());
    oci::Digest::sha256(format!("{registries:?} {images:?} {layers:?}").as_bytes()).to_string()
}

/// Returns `None` if the owner of the store is an older version without this call. The command works without the answer.
fn optional<T>(answer: cri_api::Result<T>) -> cri_api::Result<Option<T>> {
    match answer {
        Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Unimplemented) => {
            tracing::debug!("not answered: {}", error.message());
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

fn warn(endpoint: &Endpoint) {
    if let Some(warning) = endpoint.warning() {
        tracing::warn!("{warning}");
    }
}

/// Returns the registries as this process reaches them, without a store.
pub(crate) fn registries(config: &Config, proxies: &Proxies) -> Registries {
    let network = PullNetwork::new(config.pulls.bandwidth);
    Registries::new(&engine_options(config, proxies, false, &network, None))
}
