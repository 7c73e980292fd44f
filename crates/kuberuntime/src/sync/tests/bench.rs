//! [`Bench`]: hands over the runtime and the images in memory, with a real image manager between them, a clock that only a
//! test moves, and directories of their own.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cri_api::testing::{CallKind, FakeImage, FakeImageService, FakeProcess, FakeRuntimeService};
use cri_api::{ContainerState, RuntimeService, RuntimeStatus};
use futures::future::BoxFuture;
use image_manager::{ImageManager, Options, PullerOptions, RingRecorder, WallClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::actions::{PodActions, compute_pod_actions};
use crate::config::{ClusterDns, NodeResources};
use crate::handlers::Handlers;
use crate::pod::Pod;
use crate::sync::{NodeFacts, PodCredentials, PodRuntime, PodRuntimeError, PodRuntimeParts, SyncReport};
use crate::volumes::Volumes;
use crate::{Documents, ObservedPod, Origin, PodContext, PodStatus, ProbeResults, StatusInput, Waiting, pod_status};

/// When the clocks begin, in seconds.
const BEGIN: i64 = 1_700_000_000;

pub(crate) struct Bench {
    pub(crate) runtime: FakeRuntimeService,
    pub(crate) images: FakeImageService,
    pub(crate) ring: Arc<RingRecorder>,
    pub(crate) pod_runtime: PodRuntime,
    pub(crate) pod: Pod,
    pub(crate) probes: ProbeResults,
    pub(crate) stop: CancellationToken,
    /// Outcomes of starts, as a worker keeps them.
    pub(crate) waiting: Mutex<BTreeMap<String, Waiting>>,
    pub(crate) documents: Arc<Mutex<Documents>>,
    pub(crate) credentials: Arc<Mutex<PodCredentials>>,
    pub(crate) root: tempfile::TempDir,
    now: Arc<AtomicI64>,
    told: AtomicI64,
}

/// A pod of this spec, as a file of the node has it.
pub(crate) fn pod(spec: &Value) -> Pod {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    crate::admit(&manifest, "edge", Origin::File("/etc/pods/web.yaml")).expect("admitted")
}

impl Bench {
    /// With a pod of this spec, and images `x`, `x:1` and `x:2`.
    pub(crate) fn new(spec: &Value) -> Self {
        let (runtime, images) = (FakeRuntimeService::new(), FakeImageService::new());
        let runtime = runtime.with_images(&images);
        for name in ["x", "x:1", "x:2"] {
            images.publish(name, &FakeImage::new(name));
        }
        let root = tempfile::tempdir().expect("a directory");
        let ring = Arc::new(RingRecorder::new(10_000));
        let now = Arc::new(AtomicI64::new(BEGIN));
        let documents = Arc::<Mutex<Documents>>::default();
        let credentials = Arc::<Mutex<PodCredentials>>::default();
        let bench = Self {
            pod_runtime: pod_runtime(&runtime, &images, &ring, root.path(), &now, &documents, &credentials),
            runtime,
            images,
            ring,
            pod: pod(spec),
            probes: ProbeResults::default(),
            stop: CancellationToken::new(),
            waiting: Mutex::default(),
            documents,
            credentials,
            root,
            now,
            told: AtomicI64::new(0),
        };
        bench.pass(0);
        bench
    }

    /// The program was killed, and another one is there.
    pub(crate) fn kill_9(&mut self) {
        let Self { runtime, images, ring, root, now, documents, credentials, .. } = self;
        self.pod_runtime = pod_runtime(runtime, images, ring, root.path(), now, documents, credentials);
        self.waiting = Mutex::default();
    }

    /// So many seconds pass.
    pub(crate) fn pass(&self, seconds: i64) {
        let now = self.now.fetch_add(seconds, Ordering::Relaxed) + seconds;
        self.runtime.set_now(now * 1_000_000_000);
    }

    pub(crate) async fn observe(&self) -> ObservedPod {
        self.pod_runtime.observe(&self.pod.metadata.uid).await.expect("observed")
    }

    pub(crate) async fn actions(&self) -> PodActions {
        compute_pod_actions(&self.pod, &self.observe().await, &self.probes)
    }

    /// Observes the pod once, and does what is needed.
    pub(crate) async fn sync(&self) -> SyncReport {
        self.try_sync().await.expect("observed")
    }

    /// The same, where the observation itself may fail.
    pub(crate) async fn try_sync(&self) -> Result<SyncReport, PodRuntimeError> {
        let observed = self.pod_runtime.observe(&self.pod.metadata.uid).await?;
        let told = |name: &str, waiting: Option<&Waiting>| {
            let mut all = self.waiting.lock();
            match waiting {
                Some(why) => drop(all.insert(name.to_owned(), why.clone())),
                None => drop(all.remove(name)),
            }
        };
        Ok(self.pod_runtime.sync_pod(&self.pod, &observed, &self.probes, &told, &self.stop).await)
    }

    /// A sync in which nothing failed.
    pub(crate) async fn good(&self) -> SyncReport {
        let report = self.sync().await;
        assert_eq!(report.errors, Vec::<String>::new());
        report
    }

    /// Syncs until there is nothing to do, and returns the actions of each sync.
    pub(crate) async fn settle(&self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..10 {
            let actions = self.good().await.actions;
            let over = actions.kill_pod.is_some() && !actions.create_sandbox;
            if actions.is_empty() || over {
                return told;
            }
            let starts = actions.init_to_start.iter().chain(&actions.containers_to_start);
            told.push(starts.map(|start| start.name.as_str()).collect::<Vec<_>>().join(" "));
            // Whatever ended has waited long enough.
            self.pass(700);
        }
        panic!("it does not settle: {told:?}")
    }

    pub(crate) async fn end(&self, grace: Option<i64>) -> Result<(), PodRuntimeError> {
        self.pod_runtime.end_pod(Some(&self.pod), &self.observe().await, grace).await
    }

    pub(crate) async fn status(&self) -> PodStatus {
        let waiting = self.waiting.lock().clone();
        pod_status(&StatusInput {
            pod: &self.pod,
            observed: &self.observe().await,
            probes: &self.probes,
            waiting: &waiting,
            ended: None,
            host_ips: &[],
            runtime_name: "fake",
            previous: None,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Why a container waits: reason and message.
    pub(crate) async fn waits(&self, name: &str) -> (String, String) {
        let status = self.status().await;
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        let status = all.chain(&status.ephemeral_container_statuses).find(|status| status.name == name);
        match status.map(|status| status.state.clone()) {
            Some(crate::ContainerState::Waiting(Waiting { reason, message })) => (reason, message),
            other => panic!("{name} does not wait: {other:?}"),
        }
    }

    pub(crate) fn ends(&self, container: &str, code: i32) {
        self.runtime.behave(container, FakeProcess { ends: Some(code), ..FakeProcess::default() });
    }

    pub(crate) async fn id_of(&self, container: &str) -> String {
        self.observe().await.latest(container).expect("there").id.clone()
    }

    pub(crate) async fn counts(&self) -> Vec<u32> {
        self.status().await.container_statuses.iter().map(|container| container.restart_count).collect()
    }

    /// Events since the last call: `container: Reason`, with the message behind those that failed.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.ring.since(u64::try_from(self.told.load(Ordering::Relaxed)).expect("a count"));
        let last = events.last().map(|event| i64::try_from(event.number).expect("a count"));
        self.told.fetch_max(last.unwrap_or_default(), Ordering::Relaxed);
        let short = |path: &str| path.split_once('{').map_or("pod", |(_, name)| name.trim_end_matches('}')).to_owned();
        events
            .into_iter()
            .map(|event| event.event)
            .map(|event| match event.kind {
                image_manager::EventType::Normal => format!("{}: {}", short(&event.object.field_path), event.reason),
                image_manager::EventType::Warning => {
                    format!("{}: {}: {}", short(&event.object.field_path), event.reason, event.message)
                }
            })
            .collect()
    }

    /// Syncs, with a rest after each, until one succeeds and has nothing more to do.
    pub(crate) async fn recover(&self) {
        for _ in 0..20 {
            let report = self.try_sync().await;
            self.rest(700).await;
            if report.is_ok_and(|report| report.errors.is_empty() && report.actions.is_empty()) {
                return;
            }
        }
        panic!("it does not recover: {}", self.actions().await)
    }

    /// So many seconds pass for everybody.
    pub(crate) async fn rest(&self, seconds: u32) {
        self.pass(seconds.into());
        tokio::time::advance(Duration::from_secs(seconds.into())).await;
    }

    /// Calls that change something, since they were forgotten.
    pub(crate) fn changes(&self) -> Vec<(CallKind, String)> {
        let looks = [
            CallKind::ListContainers,
            CallKind::ListPodSandboxes,
            CallKind::ContainerStatus,
            CallKind::PodSandboxStatus,
            CallKind::RuntimeStatus,
            CallKind::Version,
        ];
        self.runtime.calls().into_iter().filter(|(kind, _)| !looks.contains(kind)).collect()
    }

    /// Everything that the runtime has: names of containers with their states, and how many sandboxes.
    pub(crate) async fn everything(&self) -> (Vec<(String, ContainerState)>, usize) {
        let containers = self.runtime.list_containers(None).await.expect("listed");
        let mut containers: Vec<_> = containers.into_iter().map(|c| (c.metadata.name, c.state)).collect();
        containers.sort_by(|a, b| a.0.cmp(&b.0));
        (containers, self.runtime.list_pod_sandboxes(None).await.expect("listed").len())
    }
}

/// A node without a cluster, whose directories of logs and links lie below `root`.
pub(crate) fn facts(root: &std::path::Path, wall_clock: WallClock) -> NodeFacts {
    let below = |name: &str| root.join(name).display().to_string();
    NodeFacts {
        context: PodContext { node_name: "edge".into(), host_ips: vec!["192.0.2.1".into()], ..PodContext::default() },
        resources: NodeResources::default(),
        dns: cri_api::DnsConfig::default(),
        cluster_dns: ClusterDns::default(),
        hosts_file: "127.0.0.1\tlocalhost\n".into(),
        pod_logs: below("logs"),
        container_logs: Some(below("links")),
        cgroup_parent: "/pods".into(),
        longest_restart_delay: Duration::from_secs(300),
        wall_clock,
    }
}

fn pod_runtime(
    runtime: &FakeRuntimeService,
    images: &FakeImageService,
    ring: &Arc<RingRecorder>,
    root: &std::path::Path,
    now: &Arc<AtomicI64>,
    documents: &Arc<Mutex<Documents>>,
    credentials: &Arc<Mutex<PodCredentials>>,
) -> PodRuntime {
    let service: Arc<dyn RuntimeService> = Arc::new(runtime.clone());
    let (clock, documents, credentials) = (Arc::clone(now), Arc::clone(documents), Arc::clone(credentials));
    let clock = move || Timestamp::from_second(clock.load(Ordering::Relaxed)).expect("a time");
    let node = facts(root, Arc::new(clock));
    let reports = runtime.clone();
    let sandbox_image = move || -> BoxFuture<'static, Option<String>> {
        let status = RuntimeStatus { info: reports.reported(), ..RuntimeStatus::default() };
        Box::pin(std::future::ready(status.sandbox_image()))
    };
    let puller = PullerOptions { serialize: false, qps: 0.0, ..PullerOptions::default() };
    let options = Options { puller, ..Options::default() };
    PodRuntime::new(PodRuntimeParts {
        images: Arc::new(ImageManager::new(Arc::new(images.clone()), Arc::clone(ring) as _, options)),
        sandbox_image: Arc::new(sandbox_image),
        events: Arc::clone(ring) as _,
        volumes: Arc::new(Volumes::new(root.join("pods"))),
        handlers: Arc::new(Handlers::new(Arc::clone(&service))),
        runtime: service,
        credentials: Arc::new(move |_| credentials.lock().clone()),
        documents: Arc::new(move |_| Box::pin(std::future::ready(documents.lock().clone()))),
        node,
    })
}
