//! [`Images`]: the images that a command means: in a store of this process, in that of an agent which holds the root, or behind
//! a foreign runtime. Decides which, once; everybody else sees the traits of the waist. Does nothing with images.
//! Called by [`App`](crate::app::App).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::admin::engine_client::AgentEngine;
use agent::admin::socket_endpoint;
use agent::collection::owner::Owner;
use cri_api::{ImageService, ImageSpec, ImageStatus, Kind};
use cri_grpc::Endpoint;
use cri_grpc::client::connect_image_service;
use engine_api::{ImageEngine, ImageUsage, UnfinishedPulls};
use image_service::{Engine, EngineOptions, OpenError, Reach, Registries};
use store::OpenError as StoreOpenError;

use crate::config::Config;
use crate::endpoint::{USER_AGENT, admin_socket, client_options, parse_endpoint};
use crate::environment::Proxies;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// A `Retry-After` that is waited out within a pull although somebody would come again.
const BRIEF: Duration = Duration::from_secs(2);

/// Images, and how they are reached.
pub(crate) struct Images {
    service: Arc<dyn ImageService>,
    /// The calls beyond CRI; `None` where a foreign runtime keeps the images.
    engine: Option<Arc<dyn ImageEngine>>,
    keeper: Keeper,
}

/// The process that keeps the images.
enum Keeper {
    /// This one.
    ThisProcess(Engine),
    /// The agent that holds the root.
    Agent(Endpoint),
    /// A runtime, or an agent that was named as one.
    Runtime(Endpoint),
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Images {
    /// Opens what the configuration names. With `socket` the embedded root is for this process alone, which will serve its
    /// images there. `backs_off`: somebody tries failed pulls again later.
    pub(crate) async fn open(
        config: &Config,
        proxies: &Proxies,
        backs_off: bool,
        socket: Option<PathBuf>,
    ) -> Outcome<Self> {
        if let Some(endpoint) = &config.image_service_endpoint {
            let endpoint = parse_endpoint(endpoint)?;
            warn(&endpoint);
            if let Some(policy) = &config.engine.signature_policy {
                let policy = policy.display();
                tracing::warn!(
                    "signaturePolicy {policy} is not looked at: {endpoint} pulls, and decides by its own policy"
                );
            }
            own_reach(config, &endpoint)?;
            let service = connect(config, &endpoint).await?;
            return Ok(Self { service, engine: None, keeper: Keeper::Runtime(endpoint) });
        }
        let serves = socket.is_some();
        match Engine::open(engine_options(config, proxies, backs_off, socket)).await {
            Ok(engine) => Ok(Self {
                service: Arc::new(engine.clone()),
                engine: Some(Arc::new(engine.clone())),
                keeper: Keeper::ThisProcess(engine),
            }),
            Err(OpenError::Store(StoreOpenError::Held { root, pid, socket: Some(socket) })) if !serves => {
                let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
                let (root, shown) = (root.display(), socket.display());
                tracing::info!("{root} is held by process {pid}; going on through its socket {shown}");
                let endpoint = socket_endpoint(&socket)
                    .map_err(|error| Failure::caused(Code::Config, format!("endpoint {shown}"), &error))?;
                warn(&endpoint);
                own_reach(config, &endpoint)?;
                let service = connect(config, &endpoint).await?;
                let engine = Some(Arc::new(engine_of_agent(config)) as Arc<dyn ImageEngine>);
                Ok(Self { service, engine, keeper: Keeper::Agent(endpoint) })
            }
            Err(error) => Err(open_failure(&error)),
        }
    }

    /// The CRI half.
    pub(crate) fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
    }

    /// The calls beyond CRI; `None` where a foreign runtime keeps the images.
    pub(crate) fn engine(&self) -> Option<Arc<dyn ImageEngine>> {
        self.engine.clone()
    }

    /// The same, of a store of this process: what its admin endpoint does for others.
    pub(crate) fn own_engine(&self) -> Option<Arc<dyn ImageEngine>> {
        self.engine.clone().filter(|_| matches!(self.keeper, Keeper::ThisProcess(_)))
    }

    /// The endpoint of another process that keeps the images.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match &self.keeper {
            Keeper::ThisProcess(_) => None,
            Keeper::Agent(endpoint) | Keeper::Runtime(endpoint) => Some(endpoint),
        }
    }

    /// The same as text; empty for a store of this process.
    pub(crate) fn endpoint_text(&self) -> String {
        self.endpoint().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns true if `imagelet serve` keeps them, in the root of this command.
    pub(crate) fn are_served(&self) -> bool {
        matches!(self.keeper, Keeper::Agent(_))
    }

    /// The other process that collects these images and answers on `socket`; `None`: this one may.
    pub(crate) async fn collector(&self, socket: &Path) -> Outcome<Option<Owner>> {
        match &self.keeper {
            Keeper::ThisProcess(_) => Ok(None),
            Keeper::Agent(_) => Ok(Some(Owner::of_root(socket).await?)),
            Keeper::Runtime(endpoint) => Ok(Owner::of_endpoint(socket, &endpoint.to_string()).await),
        }
    }

    /// The CRI half, with what is pinned marked as such: as it is where an agent marks it, otherwise as `mark` makes it.
    pub(crate) async fn marked(
        &self,
        mark: impl AsyncFnOnce(Arc<dyn ImageService>) -> Arc<dyn ImageService>,
    ) -> Arc<dyn ImageService> {
        match self.keeper {
            Keeper::Agent(_) => self.service(),
            Keeper::ThisProcess(_) | Keeper::Runtime(_) => mark(self.service()).await,
        }
    }

    /// Returns true if layers become directory trees in this process; `None` where another one unpacks.
    pub(crate) fn unpacks_directories(&self) -> Option<bool> {
        match &self.keeper {
            Keeper::ThisProcess(engine) => Some(engine.store().new_layers().format == store::LayerFormat::Dir),
            Keeper::Agent(_) | Keeper::Runtime(_) => None,
        }
    }

    /// The verbose status of an image, also of one that must not be used, where that is known.
    pub(crate) async fn inspect(&self, image: &ImageSpec) -> cri_api::Result<ImageStatus> {
        match &self.engine {
            Some(engine) => match optional(engine.inspect_image(image).await)? {
                Some(status) => Ok(status),
                None => self.service.image_status(image, true).await,
            },
            None => self.service.image_status(image, true).await,
        }
    }

    /// The disk usage of an image, where it is known.
    pub(crate) async fn usage(&self, image: &ImageSpec) -> cri_api::Result<Option<ImageUsage>> {
        match &self.engine {
            Some(engine) => Ok(optional(engine.image_usage(image).await)?.flatten()),
            None => Ok(None),
        }
    }

    /// The leftovers of interrupted pulls, where they are known.
    pub(crate) async fn unfinished(&self) -> cri_api::Result<Option<UnfinishedPulls>> {
        match &self.engine {
            Some(engine) => optional(engine.unfinished_pulls().await),
            None => Ok(None),
        }
    }

    /// Ends what goes on in the background of a store of this process.
    pub(crate) async fn close(&self) {
        if let Keeper::ThisProcess(engine) = &self.keeper {
            engine.shutdown().await;
        }
    }
}

/// The engine of the agent that holds the root.
pub(crate) fn engine_of_agent(config: &Config) -> AgentEngine {
    AgentEngine::new(admin_socket(config), config.root.clone())
}

/// An answer without which a command can do: `None` where the agent's admin socket is elsewhere, or the agent is an older one.
fn optional<T>(answer: cri_api::Result<T>) -> cri_api::Result<Option<T>> {
    match answer {
        Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Unimplemented) => {
            tracing::debug!("not told: {}", error.message());
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

async fn connect(config: &Config, endpoint: &Endpoint) -> Outcome<Arc<dyn ImageService>> {
    match connect_image_service(endpoint, client_options(config)).await {
        Ok(service) => Ok(Arc::new(service)),
        Err(error) => Err(Failure::new(code_of(error.kind()), chain(&error))),
    }
}

/// Refuses flags that say how registries are reached where another process reaches them.
fn own_reach(config: &Config, endpoint: &Endpoint) -> Outcome {
    if config.engine.reach == Reach::AsConfigured {
        return Ok(());
    }
    let flags = "--tls-verify and --plain-http are for pulls of this process";
    Err(Failure::usage(format!("{flags}, and {endpoint} pulls: configure the registry's hosts.toml there")))
}

/// The registries as this process reaches them, without a store.
pub(crate) fn registries(config: &Config, proxies: &Proxies) -> Registries {
    Registries::new(&engine_options(config, proxies, false, None))
}

/// The options of the embedded engine, by the configuration.
fn engine_options(config: &Config, proxies: &Proxies, backs_off: bool, agent_socket: Option<PathBuf>) -> EngineOptions {
    let mut options = EngineOptions {
        root: config.root.clone(),
        hosts_roots: config.registry_config_paths.clone(),
        allowed_targets: config.allowed_registry_targets.clone(),
        bandwidth: Some(config.pulls.bandwidth).filter(|rate| *rate > 0),
        user_agent: USER_AGENT.to_owned(),
        ..config.engine.clone()
    };
    if backs_off {
        options.retry.max_retry_after = BRIEF;
    }
    options.store.agent_socket = agent_socket;
    let limits = &mut options.store.limits;
    limits.pax_record_bytes = limits.pax_record_bytes.min(limits.pax_header_bytes);
    limits.long_name_bytes = limits.long_name_bytes.min(limits.pax_header_bytes);
    options.proxy.http.clone_from(&proxies.http);
    options.proxy.https.clone_from(&proxies.https);
    options.proxy.no_proxy.clone_from(&proxies.no_proxy);
    options
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
    Failure::new(code, chain(error))
}
