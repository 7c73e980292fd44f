//! [`Node`]: the parts of a node that runs pods, put together: runtime, images, collection, probes, volumes, and the loop that
//! keeps pods as they should be. Holds no rule of its own about pods or images. Made by `imagelet run`, which also says which
//! pods there should be.

pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod lock;
pub(crate) mod notify;
mod secrets;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cri_api::RuntimeService;
use cri_grpc::Endpoint;
use cri_grpc::client::connect_runtime_service;
use image_manager::{EventRecorder, LogRecorder, WallClock};
use kuberuntime::Phase;
use kuberuntime::container_gc::PodStates;
use kuberuntime::handlers::Handlers;
use kuberuntime::logs::{LogRotationOptions, LogRotator};
use kuberuntime::probes::ProbeManager;
use kuberuntime::sources::{DesiredPods, DocumentStore, Source, SourceOptions, Sources, UrlSource};
use kuberuntime::sync::{PodRuntime, PodRuntimeParts};
use kuberuntime::volumes::Volumes;
use kuberuntime::workers::{AgentOptions, PodAgent};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::pods::{About, PodBoard};
use crate::admin::{Admin, Places, Running};
use crate::app::App;
use crate::collection::{Collection, KnownPods};
use crate::config::Config;
use crate::endpoint::parse_endpoint;
use crate::exit::{Code, Failure, Outcome, chain, code_of};
use crate::wiring::Mode;
use events::EventBook;
use secrets::PullCredentials;

/// Where runtimes listen that nobody had to configure.
const USUAL_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];
/// How many events are kept.
const EVENTS: usize = 2000;
/// Pauses between two looks for a runtime that is not there.
const PATIENCE: Duration = Duration::from_secs(1);

/// The parts that reading manifests needs, before there is a runtime to run them on.
pub(crate) struct Reading {
    /// How they are read.
    pub(crate) options: SourceOptions,
    /// The node keeps running, and so waits for what is not there yet.
    stays: bool,
    book: Arc<EventBook>,
    recorder: Arc<dyn EventRecorder>,
}

impl Reading {
    /// Of a node that stays, or of a command in the foreground.
    pub(crate) fn new(config: &Config, stays: bool) -> Self {
        let clock: WallClock = Arc::new(jiff::Timestamp::now);
        let book = Arc::new(EventBook::new(EVENTS, Arc::clone(&clock)));
        // A command in the foreground tells of states; the events behind them are for the curious.
        let log: Arc<dyn EventRecorder> = if stays { Arc::new(LogRecorder) } else { Arc::new(events::Quiet) };
        let recorder = events::all(vec![Arc::clone(&book) as Arc<dyn EventRecorder>, log]);
        let parse = Arc::new(crate::yaml::values);
        let mut options = SourceOptions::new(facts::name(config), parse, Arc::clone(&recorder), clock);
        options.file_check = config.pods.file_period;
        options.http_check = config.pods.http_period;
        options.seccomp_default = config.pods.seccomp_default;
        Self { options, stays, book, recorder }
    }
}

/// The sources that the configuration and the command line name.
pub(crate) fn sources(config: &Config, manifests: &[PathBuf]) -> Vec<Source> {
    let pods = &config.pods;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let paths: Vec<PathBuf> = match manifests {
        [] => pods.manifests.iter().cloned().collect(),
        given => given.iter().map(absolute).collect(),
    };
    let headers = || pods.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    let url = pods.url.iter().map(|url| Source::Url(UrlSource { url: url.clone(), headers: headers() }));
    let documents = pods.documents.iter().cloned().map(Source::Documents);
    paths.into_iter().map(Source::Path).chain(url).chain(documents).collect()
}

/// A node that runs pods.
pub(crate) struct Node {
    /// The loop.
    pub(crate) agent: Arc<PodAgent>,
    /// The images.
    pub(crate) collection: Arc<Collection>,
    /// The pods that there should be.
    pub(crate) desired: watch::Receiver<DesiredPods>,
    sources: Sources,
    documents: DocumentStore,
    credentials: Arc<PullCredentials>,
    hands: Arc<PodRuntime>,
    probes: Arc<ProbeManager>,
    rotator: LogRotator,
    book: Arc<EventBook>,
    about: About,
    stays: bool,
}

/// Where the runtime of this machine listens: containerd or CRI-O, whichever is there.
pub(crate) fn usual_endpoint() -> String {
    let there = USUAL_SOCKETS.iter().find(|path| std::path::Path::new(path).exists());
    format!("unix://{}", there.unwrap_or(&USUAL_SOCKETS[0]))
}

/// The endpoints of `run`, where the configuration is silent: the runtime that is here, and its images.
pub(crate) fn choose_endpoints(config: &mut Config) {
    if config.container_runtime_endpoint.is_none() {
        let endpoint = usual_endpoint();
        config.notes.push(format!("containerRuntimeEndpoint is not set: pods run on {endpoint}"));
        config.container_runtime_endpoint = Some(endpoint);
    }
    // As for the kubelet, images are where containers are.
    if config.image_service_endpoint.is_none() {
        config.image_service_endpoint.clone_from(&config.container_runtime_endpoint);
    }
}

impl Node {
    /// Connects, and puts the parts together. Nothing runs yet.
    pub(crate) async fn new(app: &App, reading: Reading, sources: Vec<Source>) -> Outcome<Self> {
        let Reading { options, stays, book, recorder } = reading;
        let clock = Arc::clone(&options.wall_clock);
        let sources = Sources::new(sources, options);
        let (desired, documents) = (sources.desired(), sources.documents());
        let directory = app.config.credentials.secrets_directory.clone();
        let credentials = Arc::new(PullCredentials::read(directory, documents.clone()).await?);
        let endpoint = parse_endpoint(app.config.container_runtime_endpoint.as_deref().unwrap_or_default())?;
        let runtime = until_there(app, stays, async || runtime(app, &endpoint).await).await?;
        let images = until_there(app, stays, async || app.images().await).await?;

        let agent = Arc::new(OnceLock::new());
        let pods = KnownPods {
            states: Arc::new(Late(Arc::clone(&agent))),
            images: needed_images(Arc::clone(&agent), desired.clone()),
        };
        let parts = crate::collection::Parts {
            service: images.service(),
            engine: images.engine(),
            operations: None,
            endpoint: images.endpoint_text(),
            runtime: Ok(Some(Arc::clone(&runtime))),
            events: Arc::clone(&recorder),
            records: app.records_to_prune().await,
            pods: Some(pods),
        };
        let collection = Arc::new(Collection::open(&app.config, parts).await?);
        app.collects(Arc::clone(&collection));
        let mode = if stays { Mode::Agent } else { Mode::OneShot };
        let managed = app.managed(Arc::clone(&recorder), mode).await?;
        managed.recover(&app.config, &*images.service()).await?;
        let runtime = managed.watched(runtime);

        let config = app.config.clone();
        let facts = tokio::task::spawn_blocking(move || facts::read(&config)).await;
        let node = facts.map_err(|_| Failure::failed("look at the node: the reader panicked"))?;
        let about = About {
            node_name: node.around.node_name.clone(),
            runtime_endpoint: endpoint.to_string(),
            pod_logs: node.pod_logs.clone(),
            pid: std::process::id(),
        };
        let handlers = Arc::new(Handlers::new(Arc::clone(&runtime)));
        let (changed, changes) = mpsc::unbounded_channel();
        let probes = ProbeManager::new(Arc::clone(&handlers), Arc::clone(&recorder), changed, Arc::clone(&clock));
        let probes = Arc::new(probes);
        let rotator = LogRotator::new(Arc::clone(&runtime), rotation(&app.config, clock));
        let (secrets, of_documents) = (Arc::clone(&credentials), documents.clone());
        let hands = Arc::new(PodRuntime::new(PodRuntimeParts {
            runtime,
            images: Arc::clone(&managed.manager),
            events: recorder,
            volumes: Arc::new(Volumes::new(app.config.root.join("pods"))),
            handlers,
            credentials: Arc::new(move |pod| secrets.of(pod)),
            documents: Arc::new(move |namespace| of_documents.of(namespace)),
            node,
        }));
        // What somebody else runs here is not the business of a command in the foreground.
        let options =
            AgentOptions { resync: app.config.pods.sync_period, end_unknown: stays, ..AgentOptions::default() };
        let made = PodAgent::new(Arc::clone(&hands), Arc::clone(&probes), desired.clone(), changes, options);
        let made = Arc::new(made);
        let _ = agent.set(Arc::clone(&made));
        Ok(Self {
            agent: made,
            collection,
            desired,
            sources,
            documents,
            credentials,
            hands,
            probes,
            rotator,
            book,
            about,
            stays,
        })
    }

    /// The state of pods for the admin endpoint.
    pub(crate) fn board(&self) -> PodBoard {
        PodBoard {
            agent: Arc::clone(&self.agent),
            desired: self.desired.clone(),
            events: Arc::clone(&self.book),
            node: self.about.clone(),
        }
    }

    /// Puts everything that is counted into `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.collection.register(registry);
        self.hands.metrics().register(registry);
        self.agent.metrics().register(registry);
        self.probes.metrics().register(registry);
    }

    /// Does everything that goes on in the background until `stop`. Containers go on.
    pub(crate) async fn keep(&self, app: &App, stop: &CancellationToken) {
        let images = async {
            match (self.stays, app.config.gc.enabled.unwrap_or(true)) {
                (true, true) => self.collection.run(stop).await,
                (true, false) => self.collection.watch(stop).await,
                (false, _) => {}
            }
        };
        let documents = async {
            let mut changes = self.documents.changes();
            while stop.run_until_cancelled(changes.changed()).await.is_some_and(|heard| heard.is_ok()) {
                self.agent.documents_changed();
            }
        };
        let secrets = self.credentials.keep(app.config.pods.file_period, stop);
        let logs = self.rotator.run(stop);
        tokio::join!(self.sources.run(stop), self.agent.run(stop), images, documents, secrets, logs);
        self.hands.shutdown().await;
    }
}

/// How logs of containers are rotated.
fn rotation(config: &Config, clock: WallClock) -> LogRotationOptions {
    let pods = &config.pods;
    LogRotationOptions {
        max_size: pods.log_size,
        max_files: pods.log_files,
        workers: pods.log_workers,
        interval: pods.log_period,
        ..LogRotationOptions::new(config.pod_logs.clone(), clock)
    }
}

/// The runtime behind an endpoint, if it is one.
async fn runtime(app: &App, endpoint: &Endpoint) -> Outcome<Arc<dyn RuntimeService>> {
    let runtime = connect_runtime_service(endpoint, app.client_options()).await;
    let runtime = runtime.map_err(|error| Failure::new(code_of(error.kind()), chain(&error)))?;
    let version = runtime.version().await.map_err(|error| Failure::call(endpoint, &error))?;
    // Ours answers so where nobody stands behind it.
    if version.runtime_name == "imagelet" {
        return Err(Failure::new(
            Code::Config,
            format!("containerRuntimeEndpoint: {endpoint} serves images and runs no pods"),
        ));
    }
    let (name, version) = (version.runtime_name, version.runtime_version);
    tracing::info!("pods run on {name} {version} at {endpoint}");
    Ok(Arc::new(runtime))
}

/// The value that `look` finds. A process that stays waits for whoever does not answer, and says so once, in the log and to whoever
/// asks its admin endpoint.
async fn until_there<T>(app: &App, stays: bool, mut look: impl AsyncFnMut() -> Outcome<T>) -> Outcome<T> {
    let mut waiting: Option<Running> = None;
    loop {
        let failure = match look().await {
            Err(failure) if stays && failure.code() == Code::Unreachable => failure,
            result => {
                if let Some(waiting) = waiting {
                    waiting.stop().await;
                }
                return result;
            }
        };
        if waiting.is_none() {
            let line = format!("waiting for the container runtime: {}", failure.lines().join("; "));
            tracing::warn!("{line}");
            notify::Notify::of(&app.environment).status("waiting for the container runtime");
            waiting = Some(Admin::waiting(&line).start(&places(&app.config), &app.stop).await?);
        }
        tokio::select! {
            () = app.stop.cancelled() => return Err(Failure::new(app.signals.code(), "ended by a signal")),
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }
}

/// Where a process that runs pods answers. `pods` and `describe` ask there: it must be had.
pub(crate) fn places(config: &Config) -> Places {
    Places { asked_for: true, ..Places::of(config) }
}

/// The states of an agent that is yet to come: it needs what asks for them.
struct Late(Arc<OnceLock<Arc<PodAgent>>>);

impl Late {
    fn ask(&self, question: impl Fn(&dyn PodStates) -> bool) -> bool {
        self.0.get().is_some_and(|agent| question(&*agent.states()))
    }
}

impl PodStates for Late {
    fn sources_ready(&self) -> bool {
        self.ask(|states| states.sources_ready())
    }

    fn content_removable(&self, pod_uid: &str) -> bool {
        self.ask(|states| states.content_removable(pod_uid))
    }

    fn runtime_removable(&self, pod_uid: &str) -> bool {
        self.ask(|states| states.runtime_removable(pod_uid))
    }
}

/// The names of the images that pods need, whether there is a container of them or not. A pod that has ended for good needs
/// none.
fn needed_images(
    agent: Arc<OnceLock<Arc<PodAgent>>>,
    desired: watch::Receiver<DesiredPods>,
) -> image_manager::gc::Volumes {
    Arc::new(move || {
        let views = agent.get().map(|agent| agent.pods()).unwrap_or_default();
        let over = views.iter().filter(|view| matches!(view.status.phase, Phase::Succeeded | Phase::Failed));
        let over: HashSet<&str> = over.map(|view| view.pod.metadata.uid.as_str()).collect();
        let desired = desired.borrow();
        let pods = desired.pods.values().filter(|pod| !over.contains(pod.metadata.uid.as_str()));
        let mut names: Vec<String> = pods
            .flat_map(|pod| pod.images().into_iter().flat_map(|image| names(image.image)).collect::<Vec<_>>())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    })
}

/// An image's name as it was written, and as a runtime lists it.
fn names(image: &str) -> Vec<String> {
    let full = oci::Reference::parse(image).ok();
    let listed = full.map(|full| [full.clone().with_default_tag().to_string(), full.canonical().to_string()]);
    listed.into_iter().flatten().chain([image.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_what_a_runtime_lists() {
        assert_eq!(
            names("busybox"),
            ["docker.io/library/busybox:latest", "docker.io/library/busybox:latest", "busybox"]
        );
        let digest = format!("sha256:{}", "0".repeat(64));
        let listed = names(&format!("r.example/a:1@{digest}"));
        assert_eq!(listed[1], format!("r.example/a@{digest}"));
        assert_eq!(names("NO NAME"), ["NO NAME"]);
    }

    #[test]
    fn sources_are_those_of_the_command_line_or_of_the_configuration() {
        let mut config = Config::defaults(&crate::environment::Environment::default());
        let shown = |sources: Vec<Source>| -> Vec<String> {
            let one = |source: Source| match source {
                Source::Path(path) => format!("pods {}", path.display()),
                Source::Documents(path) => format!("documents {}", path.display()),
                Source::Url(url) => format!("url {} {:?}", url.url, url.headers),
                Source::Once(_) => "once".to_owned(),
            };
            sources.into_iter().map(one).collect()
        };
        assert_eq!(shown(sources(&config, &[])), ["pods /etc/imagelet/manifests"]);
        assert_eq!(shown(sources(&config, &["/a".into(), "/b".into()])), ["pods /a", "pods /b"]);
        config.pods.manifests = None;
        assert!(sources(&config, &[]).is_empty());
        config.pods.url = Some("http://config/pods".to_owned());
        config.pods.headers = vec![("X".to_owned(), oci::Secret::new("s3cret"))];
        config.pods.documents = Some("/d".into());
        assert_eq!(shown(sources(&config, &[])), ["url http://config/pods [(\"X\", \"s3cret\")]", "documents /d"]);
    }

    #[test]
    fn images_are_where_containers_are_unless_it_is_said_otherwise() {
        let mut config = Config::defaults(&crate::environment::Environment::default());
        config.container_runtime_endpoint = Some("unix:///run/y.sock".to_owned());
        choose_endpoints(&mut config);
        assert_eq!(config.image_service_endpoint.as_deref(), Some("unix:///run/y.sock"));
        assert!(config.notes.is_empty());
        config.image_service_endpoint = Some("unix:///run/x.sock".to_owned());
        choose_endpoints(&mut config);
        assert_eq!(config.image_service_endpoint.as_deref(), Some("unix:///run/x.sock"));
        let mut silent = Config::defaults(&crate::environment::Environment::default());
        choose_endpoints(&mut silent);
        assert_eq!(silent.container_runtime_endpoint, silent.image_service_endpoint);
        assert!(silent.notes[0].starts_with("containerRuntimeEndpoint is not set: pods run on unix:///run/"));
    }
}
