//! [`Node`]: assembles the parts of a node that runs pods: runtime, images, collection, probes, volumes, and the sync
//! loop. Has no rules of its own about pods or images. Created by `imagelet run`, which also provides the sources of
//! pods.

pub mod board;
pub mod events;
pub mod lock;
pub mod machine;
pub mod notify;
mod secrets;
mod waiting;

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cri_api::RuntimeService;
use image_manager::{EventRecorder, ImageManager, LogRecorder, Recorders, SandboxImageLookup, WallClock};
use kuberuntime::Phase;
use kuberuntime::container_gc::PodStates;
use kuberuntime::eviction::{Evictor, EvictorParts};
use kuberuntime::handlers::Handlers;
use kuberuntime::logs::{LogRotationOptions, LogRotator};
use kuberuntime::probes::ProbeManager;
use kuberuntime::sources::{DesiredPods, DocumentStore, Source, SourceOptions, Sources};
use kuberuntime::sync::{CredentialsOf, DocumentsOf, NodeFacts, PodRuntime, PodRuntimeParts};
use kuberuntime::volumes::Volumes;
use kuberuntime::workers::{AgentOptions, PodAgent};
use oci::ReferenceOrId;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::collection::{Collection, KnownPods};
use board::{NodeInfo, PodBoard};
use events::EventLog;
use secrets::PullCredentials;
pub use secrets::SecretsError;
use waiting::WaitingContainers;

/// Maximum number of events that are kept.
const EVENTS: usize = 2000;

/// The parts that reading manifests needs, before there is a runtime to run them on.
pub struct Reading {
    /// Options of all sources.
    pub options: SourceOptions,
    /// True if the node keeps running, and collects.
    keeps_running: bool,
    event_log: Arc<EventLog>,
    recorder: Arc<dyn EventRecorder>,
}

impl Reading {
    /// Creates the parts for a node that keeps running, or for a command in the foreground.
    pub fn new(node_name: String, keeps_running: bool) -> Self {
        let clock: WallClock = Arc::new(jiff::Timestamp::now);
        let event_log = Arc::new(EventLog::new(EVENTS, Arc::clone(&clock)));
        let log: Arc<dyn EventRecorder> =
            if keeps_running { Arc::new(LogRecorder) } else { Arc::new(events::DebugRecorder) };
        let recorder: Arc<dyn EventRecorder> = Arc::new(Recorders(vec![Arc::clone(&event_log) as _, log]));
        let parse = Arc::new(manifest::yaml::values);
        let options = SourceOptions::new(node_name, parse, Arc::clone(&recorder), clock);
        Self { options, keeps_running, event_log, recorder }
    }

    /// Sends events to `recorder` as well. Call it before any component has taken the recorder.
    pub fn record_also(&mut self, recorder: Arc<dyn EventRecorder>) {
        self.recorder = Arc::new(Recorders(vec![Arc::clone(&self.recorder), recorder]));
        self.options.events = Arc::clone(&self.recorder);
    }

    /// Returns true for a node that keeps running, false for a command in the foreground.
    pub fn keeps_running(&self) -> bool {
        self.keeps_running
    }
}

/// The pods that a node is to run, before there is a runtime for them. Nothing runs yet.
pub struct WantedPods {
    reading: Reading,
    sources: Sources,
    desired: watch::Receiver<DesiredPods>,
    documents: DocumentStore,
    credentials: Arc<PullCredentials>,
    /// The sync loop, once the node is made: collection asks it, and is made before.
    agent: Arc<OnceLock<Arc<PodAgent>>>,
    server: Option<ServerSide>,
}

/// The documents and credentials that an API server has for its pods.
#[derive(Clone)]
pub struct ServerSide {
    /// ConfigMaps, Secrets and tokens.
    pub documents: DocumentsOf,
    /// Pull secrets and accounts.
    pub credentials: CredentialsOf,
    /// Changes whenever a document does.
    pub changes: watch::Receiver<u64>,
}

impl WantedPods {
    /// Pods of these sources, whose pull secrets are in the sources' own documents and in `secrets`.
    pub async fn new(reading: Reading, sources: Vec<Source>, secrets: Option<PathBuf>) -> Result<Self, SecretsError> {
        let sources = Sources::new(sources, reading.options.clone());
        let (desired, documents) = (sources.desired(), sources.documents());
        let credentials = Arc::new(PullCredentials::read(secrets, documents.clone()).await?);
        Ok(Self { reading, sources, desired, documents, credentials, agent: Arc::default(), server: None })
    }

    /// Sets the API server from which some of the pods are read, if there is one.
    #[must_use]
    pub fn with_server(mut self, server: Option<ServerSide>) -> Self {
        self.server = server;
        self
    }

    /// Makes the evictor of these pods, which run on `runtime` and have their logs below `pod_logs`.
    pub fn evictor(&self, runtime: Arc<dyn RuntimeService>, volumes: Arc<Volumes>, pod_logs: String) -> Arc<Evictor> {
        let agent = Arc::clone(&self.agent);
        Arc::new(Evictor::new(EvictorParts { runtime, volumes, pod_logs, agent }))
    }

    /// Returns the states and images of the pods, for collection, and the evictor for a full disk.
    pub fn known_pods(&self, evictor: &Arc<Evictor>) -> KnownPods {
        KnownPods {
            evictor: Some(Arc::clone(evictor) as _),
            states: Arc::new(LateStates(Arc::clone(&self.agent))),
            images: needed_images(Arc::clone(&self.agent), self.desired.clone()),
        }
    }

    /// Receives the events about these pods and their images.
    pub fn events(&self) -> Arc<dyn EventRecorder> {
        Arc::clone(&self.reading.recorder)
    }
}

/// The parts of a node other than its pods.
pub struct NodeParts {
    /// Runtime of the pods.
    pub runtime: Arc<dyn RuntimeService>,
    /// The endpoint of the runtime, as text.
    pub runtime_endpoint: String,
    /// Ensures the images of containers before they start.
    pub images: Arc<ImageManager>,
    /// Returns the image of sandboxes, which is ensured before the first one.
    pub sandbox_image: SandboxImageLookup,
    /// Garbage collection of the images and containers of `runtime`.
    pub collection: Arc<Collection>,
    /// The node collects images and containers by itself.
    pub collects: bool,
    /// Facts about the machine that containers are configured by: addresses, resources, name servers.
    pub facts: NodeFacts,
    /// The directories of pods.
    pub volumes: Arc<Volumes>,
    /// Ends pods for want of disk.
    pub evictor: Arc<Evictor>,
    /// Size and number at which logs of containers are rotated, and how often they are measured.
    pub logs: LogRotationOptions,
    /// Longest time between two syncs of a pod.
    pub sync_period: Duration,
}

/// A node that runs pods.
pub struct Node {
    /// The sync loop.
    pub agent: Arc<PodAgent>,
    /// The images.
    pub collection: Arc<Collection>,
    /// The runtime of the pods.
    pub runtime: Arc<dyn RuntimeService>,
    /// The pods that there should be.
    pub desired: watch::Receiver<DesiredPods>,
    collects: bool,
    sources: Sources,
    documents: DocumentStore,
    server: Option<ServerSide>,
    credentials: Arc<PullCredentials>,
    evictor: Arc<Evictor>,
    secrets_period: Duration,
    pod_runtime: Arc<PodRuntime>,
    probes: Arc<ProbeManager>,
    rotator: LogRotator,
    event_log: Arc<EventLog>,
    recorder: Arc<dyn EventRecorder>,
    about: NodeInfo,
    keeps_running: bool,
}

impl Node {
    /// Puts the parts together. Nothing runs yet.
    pub fn new(pods: WantedPods, parts: NodeParts) -> Self {
        let WantedPods { reading, sources, desired, documents, credentials, agent, server } = pods;
        let NodeParts { runtime, runtime_endpoint, images, collection, collects, .. } = parts;
        let NodeParts { sandbox_image, facts, volumes, evictor, logs, sync_period, .. } = parts;
        let Reading { options, keeps_running, event_log, recorder } = reading;
        let about = NodeInfo {
            node_name: facts.context.node_name.clone(),
            runtime_endpoint,
            pod_logs: facts.pod_logs.clone(),
            pid: std::process::id(),
        };
        let handlers = Arc::new(Handlers::new(Arc::clone(&runtime)));
        let (changed, changes) = mpsc::unbounded_channel();
        let clock = Arc::clone(&options.wall_clock);
        let probes = Arc::new(ProbeManager::new(Arc::clone(&handlers), Arc::clone(&recorder), changed, clock));
        let rotator = LogRotator::new(Arc::clone(&runtime), logs);
        let (secrets, of_documents) = (Arc::clone(&credentials), documents.clone());
        let pod_runtime = Arc::new(PodRuntime::new(PodRuntimeParts {
            runtime: Arc::clone(&runtime),
            images,
            sandbox_image,
            events: Arc::clone(&recorder),
            volumes,
            handlers,
            credentials: credentials_of(secrets, server.clone()),
            documents: documents_of(of_documents, server.clone()),
            node: facts,
        }));
        // A command in the foreground leaves the sandboxes of other programs alone.
        let loop_options = AgentOptions { resync: sync_period, end_unknown: keeps_running, ..AgentOptions::default() };
        let made = PodAgent::new(Arc::clone(&pod_runtime), Arc::clone(&probes), desired.clone(), changes, loop_options);
        let made = Arc::new(made);
        let _ = agent.set(Arc::clone(&made));
        Self {
            agent: made,
            collection,
            runtime,
            desired,
            collects,
            sources,
            documents,
            server,
            credentials,
            evictor,
            secrets_period: options.file_check,
            pod_runtime,
            probes,
            rotator,
            event_log,
            recorder,
            about,
            keeps_running,
        }
    }

    /// Returns the state of pods for the admin endpoint.
    pub fn board(&self) -> PodBoard {
        PodBoard {
            agent: Arc::clone(&self.agent),
            desired: self.desired.clone(),
            events: Arc::clone(&self.event_log),
            node: self.about.clone(),
        }
    }

    /// Receives the events of this node.
    pub fn events(&self) -> Arc<dyn EventRecorder> {
        Arc::clone(&self.recorder)
    }

    /// Puts everything that is counted into `registry`.
    pub fn register(&self, registry: &mut Registry) {
        self.collection.register(registry);
        self.pod_runtime.metrics().register(registry);
        self.agent.metrics().register(registry);
        self.probes.metrics().register(registry);
        registry.register_collector(Box::new(WaitingContainers(Arc::clone(&self.agent))));
    }

    /// Runs all background work until `stop`. Containers keep running afterwards.
    pub async fn keep(&self, stop: &CancellationToken) {
        let images = async {
            let pins = self.collection.keep_pins_in_runtime(stop);
            match (self.keeps_running, self.collects) {
                (true, true) => tokio::join!(pins, self.collection.run(stop)).1,
                (true, false) => tokio::join!(pins, self.collection.watch(stop)).1,
                (false, _) => {}
            }
        };
        let documents = async {
            let mut changes = self.documents.changes();
            while stop.run_until_cancelled(changes.changed()).await.is_some_and(|changed| changed.is_ok()) {
                self.agent.documents_changed();
            }
        };
        let of_server = async {
            let Some(mut changes) = self.server.as_ref().map(|server| server.changes.clone()) else { return };
            while stop.run_until_cancelled(changes.changed()).await.is_some_and(|changed| changed.is_ok()) {
                self.agent.documents_changed();
            }
        };
        let secrets = self.credentials.keep(self.secrets_period, stop);
        let logs = self.rotator.run(stop);
        let limits = async {
            if self.keeps_running {
                self.evictor.run(stop).await;
            }
        };
        let work = async { tokio::join!(self.sources.run(stop), self.agent.run(stop), images) };
        tokio::join!(work, documents, of_server, secrets, logs, limits);
        self.pod_runtime.shutdown().await;
    }
}

/// Returns the documents of a pod: those of its API server, or those next to the manifests. A manifest cannot read a server's
/// Secret.
fn documents_of(local: DocumentStore, server: Option<ServerSide>) -> DocumentsOf {
    Arc::new(move |pod| match &server {
        Some(server) if pod.is_of_server() => (server.documents)(pod),
        _ => Box::pin(std::future::ready(local.of(&pod.metadata.namespace))),
    })
}

fn credentials_of(local: Arc<PullCredentials>, server: Option<ServerSide>) -> CredentialsOf {
    Arc::new(move |pod| match &server {
        Some(server) if pod.is_of_server() => (server.credentials)(pod),
        _ => local.of(pod),
    })
}

/// The states of an agent that is created later, because it needs the parts that ask for them.
struct LateStates(Arc<OnceLock<Arc<PodAgent>>>);

impl LateStates {
    fn ask(&self, question: impl Fn(&dyn PodStates) -> bool) -> bool {
        self.0.get().is_some_and(|agent| question(&*agent.states()))
    }
}

impl PodStates for LateStates {
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

/// Returns the images that pods need, with or without a container. A pod that has ended for good needs none.
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
        let names: BTreeSet<&str> = pods.flat_map(|pod| pod.images()).map(|image| image.image).collect();
        names.into_iter().map(ReferenceOrId::from).collect()
    })
}
