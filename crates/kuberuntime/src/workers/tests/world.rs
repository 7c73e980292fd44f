//! [`World`]: a node whose runtime, images and disk outlive the agents that work on it.

use base::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cri_api::testing::{CallKind, FakeImage, FakeImageService, FakeProcess, FakeRuntimeService};
use cri_api::{Container, ContainerState, RuntimeService};
use image_manager::{ImageManager, Options, RingRecorder};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::handlers::Handlers;
use crate::labels::POD_UID;
use crate::pod::Pod;
use crate::probes::ProbeManager;
use crate::sources::{CONFIG_ORIGIN_ANNOTATION, DesiredPods};
use crate::sync::tests::bench::facts;
use crate::sync::{NodeFacts, PodCredentials, PodRuntime, PodRuntimeParts};
use crate::volumes::Volumes;
use crate::workers::{AgentOptions, PodAgent, PodView, WorkerState};
use crate::{Documents, Origin, Phase};

const BEGIN: i64 = 1_700_000_000;

/// Calls that change nothing.
const LOOKS: [CallKind; 6] = [
    CallKind::ListContainers,
    CallKind::ListPodSandboxes,
    CallKind::ContainerStatus,
    CallKind::PodSandboxStatus,
    CallKind::RuntimeStatus,
    CallKind::Version,
];

pub(super) struct World {
    pub(super) runtime: FakeRuntimeService,
    pub(super) images: FakeImageService,
    pub(super) ring: Arc<RingRecorder>,
    pub(super) root: tempfile::TempDir,
    pub(super) desired: watch::Sender<DesiredPods>,
    pub(super) options: AgentOptions,
    pub(super) documents: Arc<Mutex<Documents>>,
    begin: Instant,
    /// How far the wall clock was set, in seconds.
    pub(super) step: Arc<AtomicI64>,
}

/// An agent at work.
pub(super) struct AtWork {
    pub(super) agent: Arc<PodAgent>,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

/// A pod of the file `/etc/pods/NAME.yaml`.
pub(super) fn pod(name: &str, spec: &Value) -> Arc<Pod> {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let file = format!("/etc/pods/{name}.yaml");
    let mut pod = crate::admit(&manifest, "edge", Origin::File(&file)).expect("admitted");
    pod.metadata.annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), file);
    Arc::new(pod)
}

/// A pod with a container of its own name that runs `image`.
pub(super) fn simple(name: &str, image: &str) -> Arc<Pod> {
    pod(name, &json!({"containers": [{"name": name, "image": image}]}))
}

pub(super) fn uid(pod: &Pod) -> &str {
    &pod.metadata.uid
}

impl World {
    /// Nothing is there, and all sources have said so.
    pub(super) fn new() -> Self {
        let (runtime, images) = (FakeRuntimeService::new(), FakeImageService::new());
        for name in ["x:1", "x:2", "x:3"] {
            images.publish(name, &FakeImage::new(name));
        }
        let (begin, step) = (Instant::now(), Arc::new(AtomicI64::new(0)));
        let world = Self {
            runtime: runtime.with_images(&images),
            images,
            ring: Arc::new(RingRecorder::new(10_000)),
            root: tempfile::tempdir().expect("a directory"),
            desired: watch::Sender::new(DesiredPods { ready: true, ..DesiredPods::default() }),
            options: AgentOptions { seed: 7, events: false, ..AgentOptions::default() },
            documents: Arc::default(),
            begin,
            step,
        };
        let clock = world.clock();
        world.runtime.follow(move || i64::try_from(clock().as_nanosecond()).expect("a time"));
        world
    }

    fn clock(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let (begin, step) = (self.begin, Arc::clone(&self.step));
        move || {
            let passed = begin.elapsed() + Duration::from_secs(u64::try_from(BEGIN).expect("a time"));
            Timestamp::from_duration(passed.try_into().expect("a time")).expect("a time")
                + jiff::SignedDuration::from_secs(step.load(Ordering::Relaxed))
        }
    }

    /// Sets the wall clock.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.step.fetch_add(seconds, Ordering::Relaxed);
    }

    fn parts(&self) -> PodRuntimeParts {
        let service: Arc<dyn RuntimeService> = Arc::new(self.runtime.clone());
        let documents = Arc::clone(&self.documents);
        let node = NodeFacts { container_logs: None, ..facts(self.root.path(), Arc::new(self.clock())) };
        PodRuntimeParts {
            images: Arc::new(ImageManager::new(
                Arc::new(self.images.clone()),
                Arc::clone(&self.ring) as _,
                Options::default(),
            )),
            events: Arc::clone(&self.ring) as _,
            sandbox_image: Arc::new(|| Box::pin(std::future::ready(None))),
            volumes: Arc::new(Volumes::new(self.root.path().join("pods"))),
            handlers: Arc::new(Handlers::new(Arc::clone(&service))),
            runtime: service,
            credentials: Arc::new(|_| PodCredentials::default()),
            documents: Arc::new(move |_| Box::pin(std::future::ready(documents.lock().clone()))),
            node,
        }
    }

    /// Another agent begins to work.
    pub(super) fn start(&self) -> AtWork {
        let parts = self.parts();
        let (changed, changes) = mpsc::unbounded_channel();
        let probes = Arc::new(ProbeManager::new(
            Arc::clone(&parts.handlers),
            Arc::clone(&parts.events),
            changed,
            Arc::clone(&parts.node.wall_clock),
        ));
        let pod_runtime = Arc::new(PodRuntime::new(parts));
        let agent =
            Arc::new(PodAgent::new(pod_runtime, probes, self.desired.subscribe(), changes, self.options.clone()));
        let stop = CancellationToken::new();
        let (working, stopped) = (Arc::clone(&agent), stop.clone());
        let work = TaskTracker::new().spawn(async move { working.run(&stopped).await });
        AtWork { agent, stop, work }
    }

    /// These pods should be here, and no others.
    pub(super) fn want<'p>(&self, pods: impl IntoIterator<Item = &'p Arc<Pod>>) {
        let pods = pods.into_iter().map(|pod| (uid(pod).to_owned(), Arc::clone(pod))).collect();
        self.desired.send_modify(|desired| desired.pods = pods);
    }

    /// Containers that run process so from now on.
    pub(super) fn behave(&self, container: &str, process: FakeProcess) {
        self.runtime.behave(container, process);
    }

    /// Containers of this name end as soon as they are started.
    pub(super) fn ends(&self, container: &str, code: i32) {
        self.behave(container, FakeProcess { ends: Some(code), ..FakeProcess::default() });
    }

    /// Containers of this name do not end when they are asked to.
    pub(super) fn is_stubborn(&self, container: &str) {
        self.behave(container, FakeProcess { ignores_stop: true, ..FakeProcess::default() });
    }

    pub(super) async fn containers(&self, name: &str) -> Vec<Container> {
        let all = self.runtime.list_containers(None).await.expect("listed");
        all.into_iter().filter(|container| container.metadata.name == name).collect()
    }

    /// The id of the container of this name that runs.
    pub(super) async fn running(&self, name: &str) -> Option<String> {
        let mut all = self.containers(name).await.into_iter().filter(|c| c.state == ContainerState::Running);
        all.next().map(|container| container.id)
    }

    /// Uids of pods of which anything is in the runtime.
    pub(super) async fn uids(&self) -> Vec<String> {
        let sandboxes = self.runtime.list_pod_sandboxes(None).await.expect("listed");
        let containers = self.runtime.list_containers(None).await.expect("listed");
        let labels = sandboxes.iter().map(|s| &s.labels).chain(containers.iter().map(|c| &c.labels));
        let mut uids: Vec<_> = labels.filter_map(|labels| labels.get(POD_UID).cloned()).collect();
        uids.sort();
        uids.dedup();
        uids
    }

    /// Uids of pods that have a directory.
    pub(super) fn directories(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.path().join("pods")) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("read").file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    }

    /// Calls that changed something, since calls were forgotten.
    pub(super) fn changes(&self) -> Vec<(CallKind, String)> {
        self.runtime.calls().into_iter().filter(|(kind, _)| !LOOKS.contains(kind)).collect()
    }

    /// Where a call stands among those that changed something.
    pub(super) fn nth(&self, kind: CallKind, about: &str) -> usize {
        let calls = self.changes();
        let place = calls.iter().position(|(called, subject)| *called == kind && subject == about);
        place.unwrap_or_else(|| panic!("{kind:?} about {about} is not among {calls:?}"))
    }

    /// Nothing is left of any pod.
    pub(super) async fn assert_empty(&self) {
        assert_eq!((self.uids().await, self.directories()), (vec![], vec![]));
    }
}

impl AtWork {
    /// The process ends in order.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.work.await.expect("no panic");
    }

    /// Kills the process: nothing that it was doing continues.
    pub(super) fn kill(self) {
        self.work.abort();
    }

    pub(super) fn view(&self, pod: &Pod) -> Option<Arc<PodView>> {
        self.agent.pods().into_iter().find(|view| view.pod.metadata.uid == pod.metadata.uid)
    }

    /// Waits until something holds of all pods; how long that took.
    pub(super) async fn until(&self, what: &str, mut holds: impl FnMut(&[Arc<PodView>]) -> bool) -> Duration {
        let begin = Instant::now();
        let mut changes = self.agent.changes();
        loop {
            changes.mark_unchanged();
            if holds(&self.agent.pods()) {
                return begin.elapsed();
            }
            if tokio::time::timeout(Duration::from_secs(3600), changes.changed()).await.is_err() {
                panic!("not in an hour: {what}: {:#?}", self.agent.pods());
            }
        }
    }

    /// Waits until a pod is so; how long that took.
    pub(super) async fn until_pod(&self, what: &str, pod: &Pod, holds: impl Fn(&PodView) -> bool) -> Duration {
        let is_so = |views: &[Arc<PodView>]| {
            views.iter().find(|view| view.pod.metadata.uid == pod.metadata.uid).is_some_and(|view| holds(view))
        };
        self.until(what, is_so).await
    }

    pub(super) async fn until_ready(&self, pod: &Pod) -> Duration {
        let ready = |view: &PodView| view.status.phase == Phase::Running && view.status.is("Ready");
        self.until_pod("ready", pod, ready).await
    }

    pub(super) async fn until_state(&self, pod: &Pod, state: WorkerState) -> Duration {
        self.until_pod(state.as_str(), pod, |view| view.state == state).await
    }

    pub(super) async fn until_removed(&self, pod: &Pod) -> Duration {
        let removed = |views: &[Arc<PodView>]| !views.iter().any(|view| view.pod.metadata.uid == pod.metadata.uid);
        self.until("removed", removed).await
    }
}

/// Lets so many seconds pass.
pub(super) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
