//! Builds an image manager and its parts from the configuration: keyring, pull records, metrics, limits. Decides nothing about images.
//! Called by the commands that ensure images, or explain what would happen.

pub(crate) mod collection;
mod fingerprint;
mod tokens;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::cluster::tokens::TokenManager;
use credentials::exec::{Clock, ExecOptions, ParseYaml, Providers};
use credentials::helper::HelperOptions;
use credentials::{Keyring, KeyringOptions, NodeFiles, PathMatch};
use cri_api::{ImageService, RuntimeService};
use image_manager::{
    Allowlist, BackoffOptions, EventRecorder, ImageManager, Instrumented, InstrumentedRuntime, Metrics,
    NamespaceAccess, Options, PullBoard, PullRecords, PullerOptions, ReclaimSpace, RecordsOptions, VerificationPolicy,
    WallClock,
};
use manifest::yaml;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::config::settings::pulls::LONGEST_BACK_OFF;
use crate::config::{Config, Durability};
use crate::environment::Environment;
use crate::exit::{Code, Failure, Outcome, chain};
use tokens::PodTokens;

/// Directory of pull intents and pulled records below the root, as in the kubelet's.
const RECORDS: &str = "image_manager";
/// The kubelet's limit on what it keeps of intents in memory.
const MAX_INTENTS: usize = 1024;
/// Maximum number of records in memory, about a kilobyte each: more than a node has images. The kubelet keeps five for each pod, and 2,000
/// at most. Any other record is read from its file.
const MAX_RECORDS: usize = 10_000;
/// Maximum number of concurrent pulls in a process that runs pods: enough for the images of a pod, and few enough that images of pods with
/// a higher priority do not wait behind all others.
const SIDE_BY_SIDE: usize = 5;
/// Timeout of a docker credential helper, unless providers have less.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a credential provider: the kubelet's limit.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which node files are cached, as in the kubelet.
const NODE_CACHE: Duration = Duration::from_secs(300);

/// The caller that pulls, which decides the limits that are not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A command that a user waits for: no limit on the rate, everything at the same time.
    OneShot,
    /// A process that runs pods: the kubelet's limit on the rate, and several concurrent pulls, so that the images of a pod are pulled at
    /// the same time.
    Agent,
    /// The pulls of an agent for ImageSets, next to those of its pods: their number is limited by the caller, and so are retries.
    ImageSets,
    /// A command that only explains: nothing is pulled, created or written.
    Explain,
}

/// The parts of an image manager, in addition to the configuration and the environment.
pub(crate) struct ManagerParts {
    /// The images.
    pub(crate) service: Arc<dyn ImageService>,
    /// The recorder of events.
    pub(crate) events: Arc<dyn EventRecorder>,
    /// The pull records, and the metrics that count them.
    pub(crate) records: (Arc<Metrics>, PullRecords),
    /// Frees space for pulls; `None`: nothing is removed for them.
    pub(crate) room: Option<Arc<dyn ReclaimSpace>>,
    /// Images that namespaces may use by the cluster's ImageSets.
    pub(crate) namespace_access: NamespaceAccess,
    /// Tokens of an API server's service accounts, on a node of a cluster.
    pub(crate) tokens: Option<Arc<TokenManager>>,
    /// The board on which pulls are shown.
    pub(crate) board: PullBoard,
    /// Decides the limits that are not configured.
    pub(crate) mode: Mode,
}

/// An image manager and what it was made of.
pub(crate) struct Managed {
    pub(crate) manager: Arc<ImageManager>,
    metrics: Arc<Metrics>,
    /// Credential providers, which keep their own counts.
    providers: Option<Providers>,
    records: PullRecords,
    mode: Mode,
}

impl std::fmt::Debug for Managed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Managed").finish_non_exhaustive()
    }
}

impl Managed {
    /// Creates a manager of these parts.
    pub(crate) async fn new(config: &Config, environment: &Environment, parts: ManagerParts) -> Outcome<Self> {
        let ManagerParts { service, events, records: (metrics, records), room, namespace_access, tokens, board, mode } =
            parts;
        let clock: Clock = Arc::new(Instant::now);
        let service: Arc<dyn ImageService> =
            Arc::new(Instrumented::new(service, Arc::clone(&metrics), Arc::clone(&clock)));
        let providers = providers(config, environment, &clock, tokens).await?;
        let keyring = keyring(config, environment, Arc::clone(&clock), mode, providers.clone());
        let roots = config.registry_config_paths.clone();
        let options = Options {
            puller: puller_options(config, mode),
            clock,
            keyring: Some(Arc::new(keyring)),
            records: Some(records.clone()),
            namespace_access,
            metrics: Arc::clone(&metrics),
            backoff: backoff_options(config, mode),
            registry_fingerprint: Some(Arc::new(move |domain| fingerprint::of(&roots, domain))),
            reclaim_space: room,
            board,
        };
        let manager = Arc::new(ImageManager::new(service, events, options));
        Ok(Self { manager, metrics, providers, records, mode })
    }

    /// Applies another configuration: limits, back-off and the keyring, which reads the node's files again.
    pub(crate) fn adopt(&self, config: &Config, environment: &Environment) {
        let clock: Clock = Arc::new(Instant::now);
        let keyring = keyring(config, environment, clock, self.mode, self.providers.clone());
        self.manager.set_limits(puller_options(config, self.mode), backoff_options(config, self.mode));
        self.manager.set_keyring(Arc::new(keyring));
    }

    /// Returns the pull records.
    pub(crate) fn records(&self) -> PullRecords {
        self.records.clone()
    }

    /// Returns the metrics that count calls of the image service.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Registers all metrics of the manager in `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        if let Some(providers) = &self.providers {
            providers.register(registry);
        }
    }

    /// Returns the runtime, with its calls counted in the same metrics as those of the image service.
    pub(crate) fn watched(&self, runtime: Arc<dyn RuntimeService>) -> Arc<dyn RuntimeService> {
        Arc::new(InstrumentedRuntime::new(runtime, Arc::clone(&self.metrics), Arc::new(Instant::now)))
    }

    /// Completes the pulls that a killed process left unfinished. Must run before the first pull.
    pub(crate) async fn recover(&self, config: &Config, service: &dyn ImageService) -> Outcome {
        let directory = config.root.join(RECORDS).join("pulling");
        let left = tokio::task::spawn_blocking(move || {
            std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
        });
        if !left.await.unwrap_or(true) {
            return Ok(());
        }
        let images = service.list_images(None).await.map_err(|error| Failure::call("list images", &error))?;
        match self.records.recover(&images).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(count, "pulls were not finished by an earlier process; their images count as pulled")
            }
            // The intents stay, and so does the doubt: credentials are verified.
            Err(error) => tracing::warn!(error = chain(&error), "cannot recover pull records"),
        }
        Ok(())
    }

    /// Ends every pull, and waits for pending writes.
    pub(crate) async fn shutdown(&self) {
        self.manager.shutdown().await;
        self.records.settle().await;
    }
}

/// Opens the existing pull records; creates nothing.
pub(crate) async fn peek(config: &Config) -> Outcome<(Arc<Metrics>, PullRecords)> {
    let metrics = Metrics::new();
    let records = PullRecords::open_to_peek(records_options(config, &metrics)?).await;
    let records = records.map_err(|error| Failure::caused(Code::Failed, "open pull records", &error))?;
    Ok((metrics, records))
}

/// Opens the pull records of the root, which is created if it is missing, and the metrics that count them.
pub(crate) async fn records(config: &Config) -> Outcome<(Arc<Metrics>, PullRecords)> {
    let metrics = Metrics::new();
    make_root(config.root.clone()).await?;
    let records = PullRecords::open(records_options(config, &metrics)?).await;
    let records = records.map_err(|error| Failure::caused(Code::Failed, "open pull records", &error))?;
    Ok((metrics, records))
}

/// Creates the root if it is missing, accessible to its owner only: with the images behind an endpoint, no store has created it.
async fn make_root(root: PathBuf) -> Outcome {
    let made = tokio::task::spawn_blocking(move || {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root);
        made.map_err(|error| Failure::new(exit_code(&error), format!("make {}: {error}", root.display())))
    });
    made.await.map_err(|_| Failure::failed("make the root: the task panicked"))?
}

fn exit_code(error: &std::io::Error) -> Code {
    if error.kind() == std::io::ErrorKind::PermissionDenied { Code::NotPermitted } else { Code::Failed }
}

/// Time that a pull delayed by `registryPullQPS` waits. A burst of pods starts well within it; a pull that would wait longer
/// fails and backs off, so that the queue is bounded.
const PULL_WAIT: Duration = Duration::from_secs(30);

/// Returns the limits of pulls by the configuration; unset ones are the mode's.
fn puller_options(config: &Config, mode: Mode) -> PullerOptions {
    let pulls = &config.pulls;
    let number = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
    let agent = mode == Mode::Agent;
    if mode == Mode::ImageSets {
        return PullerOptions {
            serialize: false,
            qps: 0.0,
            linger: Duration::ZERO,
            progress_deadline: Some(pulls.progress_deadline).filter(|time| !time.is_zero()),
            ..PullerOptions::default()
        };
    }
    PullerOptions {
        serialize: pulls.serialize.unwrap_or(false),
        max_parallel: pulls.max_parallel.map(number).or(agent.then_some(SIDE_BY_SIDE)),
        // Validated to be a number of 32 bits.
        qps: pulls.qps.map_or(if agent { 5.0 } else { 0.0 }, |qps| f64::from(i32::try_from(qps).unwrap_or(i32::MAX))),
        burst: pulls.burst.filter(|burst| *burst > 0).map_or(10, |burst| u32::try_from(burst).unwrap_or(u32::MAX)),
        pull_wait: PULL_WAIT,
        progress_deadline: Some(pulls.progress_deadline).filter(|time| !time.is_zero()),
        ..PullerOptions::default()
    }
}

/// Returns the back-off by the configuration.
fn backoff_options(config: &Config, mode: Mode) -> BackoffOptions {
    if mode == Mode::ImageSets {
        // The daemon of ImageSets waits by itself, and reports when it tries again.
        return BackoffOptions {
            initial: Duration::ZERO,
            max: Duration::ZERO,
            by_cause: false,
            ..BackoffOptions::default()
        };
    }
    BackoffOptions { initial: config.back_off.initial, max: LONGEST_BACK_OFF, ..BackoffOptions::default() }
}

/// Returns the policy that decides which pods may use images that are present on the node.
pub(crate) fn policy(config: &Config) -> Outcome<VerificationPolicy> {
    let allowlist = Allowlist::parse(&config.verification.allowlist)
        .map_err(|error| Failure::caused(Code::Config, "preloadedImagesVerificationAllowlist", &error))?;
    Ok(match config.verification.policy.as_str() {
        "NeverVerify" => VerificationPolicy::NeverVerify,
        "NeverVerifyAllowlistedImages" => VerificationPolicy::NeverVerifyAllowlistedImages(allowlist),
        "AlwaysVerify" => VerificationPolicy::AlwaysVerify,
        // The configuration is validated: only this policy remains.
        _ => VerificationPolicy::NeverVerifyPreloadedImages,
    })
}

/// Returns the location of the records, and the pods that they permit to use an image.
fn records_options(config: &Config, metrics: &Arc<Metrics>) -> Outcome<RecordsOptions> {
    let wall_clock: WallClock = Arc::new(jiff::Timestamp::now);
    let pods = usize::try_from(config.max_pods).unwrap_or(0);
    let parallel = config.pulls.max_parallel.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
    Ok(RecordsOptions {
        policy: policy(config)?,
        max_intents: pods.max(parallel).saturating_mul(2).min(MAX_INTENTS),
        max_records: MAX_RECORDS,
        metrics: Arc::clone(metrics),
        durable: config.engine.durability == Durability::Full,
        ..RecordsOptions::new(config.root.join(RECORDS), wall_clock)
    })
}

/// Returns the credentials that a command of a user may use, on its own.
pub(crate) async fn user_keyring(config: &Config, environment: &Environment) -> Outcome<Keyring> {
    let clock: Clock = Arc::new(Instant::now);
    let providers = providers(config, environment, &clock, None).await?;
    Ok(keyring(config, environment, clock, Mode::OneShot, providers))
}

/// Returns how credential helpers are run.
pub(crate) fn helper_options(environment: &Environment) -> HelperOptions {
    HelperOptions { path: environment.path.clone(), environment: environment.of_children(), timeout: HELPER_TIMEOUT }
}

/// Returns every source of credentials of this node.
fn keyring(
    config: &Config,
    environment: &Environment,
    clock: Clock,
    mode: Mode,
    providers: Option<Providers>,
) -> Keyring {
    let helpers = helper_options(environment);
    Keyring::new(KeyringOptions {
        node_files: node_files(config, environment, mode),
        node_cache: NODE_CACHE,
        helpers,
        providers,
        clock,
        ..KeyringOptions::default()
    })
}

/// Directory of service accounts' tokens, below the secrets directory.
const TOKENS: &str = "tokens";

async fn providers(
    config: &Config,
    environment: &Environment,
    clock: &Clock,
    tokens: Option<Arc<TokenManager>>,
) -> Outcome<Option<Providers>> {
    // The configuration is validated: both are set, or neither is.
    let (Some(file), Some(programs)) = (&config.credentials.provider_config, &config.credentials.provider_bin_dir)
    else {
        return Ok(None);
    };
    let tokens = PodTokens::new(config.credentials.secrets_directory.as_ref().map(|at| at.join(TOKENS)), tokens);
    let tokens = tokens.map(|tokens| Arc::new(tokens) as Arc<_>);
    let parse: ParseYaml = Arc::new(yaml::json);
    let options = ExecOptions {
        environment: environment.of_children(),
        clock: Arc::clone(clock),
        yaml: parse,
        service_account_tokens: true,
        tokens,
        path_match: PathMatch::default(),
        timeout: PROVIDER_TIMEOUT,
    };
    let (file, programs) = (file.to_owned(), programs.to_owned());
    let loaded = tokio::task::spawn_blocking(move || Providers::load(&file, &programs, options)).await;
    let loaded = loaded.map_err(|_| Failure::failed("read credential providers: the reader panicked"))?;
    loaded.map(Some).map_err(|error| Failure::caused(Code::Config, "credential providers", &error))
}

/// Returns the possible locations of the node's docker configuration. The kubelet's working directory belongs to the node. The working
/// directory of a user can be any directory, with another user's `config.json` in it, so a command does not read it. Logins with podman
/// or docker count for a user's commands, and not for an agent.
fn node_files(config: &Config, environment: &Environment, mode: Mode) -> NodeFiles {
    if let Some(paths) = &config.credentials.docker_config_paths {
        return NodeFiles { paths: paths.clone(), legacy: paths.clone(), ..NodeFiles::default() };
    }
    let Environment { home, auth, .. } = environment;
    let agent = matches!(mode, Mode::Agent | Mode::ImageSets);
    let working = environment.working.clone().filter(|_| agent);
    let places = |home: Option<PathBuf>, root: &str| {
        [Some(config.root.clone()), working.clone(), home, Some(root.into())].into_iter().flatten().collect()
    };
    if agent {
        return NodeFiles {
            search: places(home.as_ref().map(|home| home.join(".docker")), "/.docker"),
            legacy: places(home.clone(), "/"),
            ..NodeFiles::default()
        };
    }
    // As for podman, a named file replaces the default ones.
    let paths = match &auth.auth_file {
        Some(file) => vec![file.clone()],
        None => auth.containers(home.as_deref()),
    };
    let own = auth.auth_file.is_none().then(|| auth.docker(home.as_deref())).flatten();
    NodeFiles { paths, search: places(own, "/.docker"), legacy: places(home.clone(), "/"), every: true }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
