//! The routes of pods over a real socket, with a real sync loop on the runtime in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{FakeImage, FakeImageService, FakeRuntimeService};
use cri_api::{DnsConfig, Kind, RuntimeService};
use image_manager::{EventRecorder, EventRef, EventType, ImageManager, Metrics, ObjectRef};
use jiff::Timestamp;
use kuberuntime::config::{ClusterDns, NodeResources};
use kuberuntime::handlers::Handlers;
use kuberuntime::probes::ProbeManager;
use kuberuntime::sources::{DesiredPods, RefusedManifest};
use kuberuntime::sync::{NodeFacts, PodCredentials, PodRuntime, PodRuntimeParts};
use kuberuntime::volumes::Volumes;
use kuberuntime::workers::{AgentOptions, PodAgent};
use kuberuntime::{Documents, Origin, PodContext, admit};
use oci::Quantity;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pod_routes::{self, NOBODY};
use super::schema_check::Document;
use super::{Admin, AdminAddress, AdminServer};
use crate::api::client::{self, Method};
use crate::node::board::{NodeInfo, PodBoard, PodList, without_secrets};
use crate::node::events::EventLog;

struct Rig {
    agent: Arc<PodAgent>,
    desired: watch::Sender<DesiredPods>,
    events: Arc<EventLog>,
    socket: std::path::PathBuf,
    stop: CancellationToken,
    tasks: TaskTracker,
    _running: AdminServer,
    _directory: tempfile::TempDir,
}

fn facts(directory: &std::path::Path) -> NodeFacts {
    NodeFacts {
        context: PodContext {
            node_name: "edge".to_owned(),
            host_ips: vec!["192.0.2.7".to_owned()],
            pod_ips: Vec::new(),
            allocatable_cpu: Quantity::milli(1000),
            allocatable_memory: Quantity::bytes(1 << 30),
            allocatable_ephemeral_storage: Quantity::bytes(1 << 30),
        },
        resources: NodeResources { memory: 1 << 30, cgroup_v2: true },
        dns: DnsConfig::default(),
        cluster_dns: ClusterDns { servers: Vec::new(), domain: String::new() },
        hosts_file: String::new(),
        pod_logs: directory.join("logs/pods").display().to_string(),
        container_logs: Some(directory.join("logs/containers").display().to_string()),
        cgroup_parent: String::new(),
        longest_restart_delay: Duration::from_secs(300),
        wall_clock: Arc::new(Timestamp::now),
    }
}

impl Rig {
    async fn start() -> Self {
        Self::on(FakeRuntimeService::new()).await
    }

    async fn on(runtime: FakeRuntimeService) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let images = FakeImageService::new();
        images.preload("registry.test/web:1", &FakeImage::new("web"));
        let clock: image_manager::WallClock = Arc::new(Timestamp::now);
        let events = Arc::new(EventLog::new(100, Arc::clone(&clock)));
        let recorder = Arc::clone(&events) as Arc<dyn EventRecorder>;
        let runtime = Arc::new(runtime) as Arc<dyn RuntimeService>;
        let options = image_manager::Options::default();
        let manager = Arc::new(ImageManager::new(Arc::new(images.clone()), Arc::clone(&recorder), options));
        let handlers = Arc::new(Handlers::new(Arc::clone(&runtime)));
        let (changed, changes) = tokio::sync::mpsc::unbounded_channel();
        let probes = ProbeManager::new(Arc::clone(&handlers), Arc::clone(&recorder), changed, clock);
        let hands = Arc::new(PodRuntime::new(PodRuntimeParts {
            runtime,
            images: manager,
            sandbox_image: Arc::new(|| Box::pin(std::future::ready(None))),
            events: recorder,
            volumes: Arc::new(Volumes::new(directory.path().join("pods"))),
            handlers,
            credentials: Arc::new(|_| PodCredentials::default()),
            documents: Arc::new(|_| Box::pin(std::future::ready(Documents::default()))),
            node: facts(directory.path()),
        }));
        let (desired, receiver) = watch::channel(DesiredPods::default());
        let probes = Arc::new(probes);
        let loop_options = AgentOptions { housekeeping: Duration::from_millis(20), ..AgentOptions::default() };
        let agent = PodAgent::new(Arc::clone(&hands), Arc::clone(&probes), receiver.clone(), changes, loop_options);
        let agent = Arc::new(agent);
        let node = NodeInfo { node_name: "edge".into(), runtime_endpoint: "unix:///r".into(), ..NodeInfo::default() };
        let board = PodBoard { agent: Arc::clone(&agent), desired: receiver, events: Arc::clone(&events), node };
        let registered = |registry: &mut Registry| {
            hands.metrics().register(registry);
            agent.metrics().register(registry);
            probes.metrics().register(registry);
        };
        let socket = directory.path().join("admin.sock");
        let places = AdminAddress::at(socket.clone());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let running =
            Admin { pods: Some(board), ..Admin::new(registered, Arc::new(images)) }.start(&places, &stop).await;
        let (works, until) = (Arc::clone(&agent), stop.clone());
        tasks.spawn(async move { works.run(&until).await });
        let _running = running.expect("it starts");
        Self { agent, desired, events, socket, stop, tasks, _running, _directory: directory }
    }

    fn want(&self, names: &[&str]) {
        let mut desired = DesiredPods { ready: true, ..DesiredPods::default() };
        for name in names {
            let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"containers": [{"name": "main", "image": "registry.test/web:1",
                    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}]}});
            let pod = admit(&manifest, "edge", Origin::File("/m/web.yaml")).expect("admitted");
            desired.pods.insert(pod.metadata.uid.clone(), Arc::new(pod));
        }
        let (origin, reason) = ("/m/bad.yaml".to_owned(), "spec: Required value".to_owned());
        desired.refused.push(RefusedManifest { origin, pod: None, reason, skipped: false });
        self.desired.send_replace(desired);
    }

    async fn list(&self) -> PodList {
        client::ask_json(&self.socket, Method::GET, "/v1/pods").await.expect("a list")
    }

    /// Asks until what is listed is this.
    async fn until(&self, want: &[&str]) -> PodList {
        let look = async {
            let mut changes = self.agent.changes();
            loop {
                changes.mark_unchanged();
                let list = self.list().await;
                let shown: Vec<String> = list
                    .items
                    .iter()
                    .map(|value| {
                        let status = &value["status"];
                        let containers = status["containerStatuses"].as_array().into_iter().flatten();
                        let running = containers.filter(|c| c["ready"] == true && c["state"]["running"].is_object());
                        let all = value["spec"]["containers"].as_array().map_or(0, Vec::len);
                        let (name, phase) = (&value["metadata"]["name"], &status["phase"]);
                        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                        format!("{} {}/{all} {}", text(name), running.count(), text(phase))
                    })
                    .collect();
                if shown == want {
                    return list;
                }
                changes.changed().await.expect("it goes on");
            }
        };
        tokio::time::timeout(Duration::from_secs(20), look).await.expect("in time")
    }

    async fn refusal(&self, target: &str) -> String {
        let failure = client::ask_json::<Value>(&self.socket, Method::GET, target).await.expect_err(target);
        failure.to_string()
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[tokio::test]
async fn pods_have_the_shape_of_kubernetes() {
    let rig = Rig::start().await;
    rig.want(&["web"]);
    let list = rig.until(&["web-edge 1/1 Running"]).await;
    assert_eq!((list.refused.len(), &*list.refused[0].origin), (1, "/m/bad.yaml"));
    let pod = &list.items[0];
    assert_eq!((&pod["apiVersion"], &pod["kind"]), (&json!("v1"), &json!("Pod")));
    assert_eq!(pod["status"]["hostIP"], json!("192.0.2.7"));
    assert_eq!(pod["metadata"]["creationTimestamp"], pod["status"]["startTime"]);
    assert_eq!(pod["metadata"].get("deletionTimestamp"), None);
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], json!("IfNotPresent"), "defaults are filled in");

    let one: Value = client::ask_json(&rig.socket, Method::GET, "/v1/pods/shop/web-edge").await.expect("a pod");
    assert_eq!((&one["pod"]["metadata"]["uid"], &one["sync"]["state"]), (&pod["metadata"]["uid"], &json!("Syncing")));
    assert_eq!(rig.refusal("/v1/pods/shop/db").await, "pod shop/db not found");
    let about: NodeInfo = client::ask_json(&rig.socket, Method::GET, "/v1/node").await.expect("a node");
    assert_eq!((&*about.node_name, &*about.runtime_endpoint), ("edge", "unix:///r"));
    assert_eq!(client::ask(&rig.socket, Method::GET, "/readyz").await.expect("ready"), "ok\n");

    rig.want(&[]);
    rig.until(&[]).await;
    rig.end().await;
}

#[tokio::test]
async fn every_route_of_pods_answers_as_documented() {
    let rig = Rig::start().await;
    rig.want(&["web"]);
    rig.until(&["web-edge 1/1 Running"]).await;
    let mut document = Document::new();
    for (path, target) in [
        ("/v1/pods", "/v1/pods"),
        ("/v1/pods/{namespace}/{name}", "/v1/pods/shop/web-edge"),
        ("/v1/events", "/v1/events?since=1"),
        ("/v1/node", "/v1/node"),
    ] {
        let asked = client::ask_json::<Value>(&rig.socket, Method::GET, target).await;
        document.check("get", path, &asked.unwrap_or_else(|error| panic!("{target}: {error}")));
    }
    let left = document.left();
    let of_pods = pod_routes::ROUTES.iter().map(|route| format!("get /v1{}", route.path));
    assert_eq!(of_pods.filter(|route| left.contains(route)).collect::<Vec<_>>(), Vec::<String>::new());
    rig.end().await;
}

#[tokio::test]
async fn events_are_waited_for() {
    let rig = Rig::start().await;
    rig.want(&["web"]);
    rig.until(&["web-edge 1/1 Running"]).await;
    let list: Value = client::ask_json(&rig.socket, Method::GET, "/v1/events").await.expect("events");
    let reasons: Vec<&str> =
        list["items"].as_array().into_iter().flatten().filter_map(|e| e["reason"].as_str()).collect();
    assert_eq!(reasons, ["Pulled", "Created", "Started"]);
    let event = &list["items"][2];
    assert_eq!(event["involvedObject"]["fieldPath"], json!("spec.containers{main}"));
    assert_eq!((&event["count"], &event["source"]["host"]), (&json!(1), &json!("edge")));

    let last = list["metadata"]["resourceVersion"].as_str().expect("a number").to_owned();
    let target = format!("/v1/events?since={last}&wait=20");
    let more = client::ask_json::<Value>(&rig.socket, Method::GET, &target);
    let happens = async {
        // The request and the event may arrive in either order.
        tokio::task::yield_now().await;
        let object = ObjectRef { namespace: "shop".into(), name: "web-edge".into(), ..ObjectRef::default() };
        let event = EventRef { object: &object, kind: EventType::Warning, reason: "Later", message: "it came" };
        rig.events.record(event);
    };
    let (more, ()) = tokio::join!(more, happens);
    let more = more.expect("an answer");
    assert_eq!((&more["items"][0]["reason"], more["items"].as_array().map(Vec::len)), (&json!("Later"), Some(1)));
    // A client that asked an earlier process gets all events.
    let anew: Value = client::ask_json(&rig.socket, Method::GET, "/v1/events?since=100000").await.expect("events");
    assert_eq!(anew["items"].as_array().map(Vec::len), Some(4));
    assert_eq!(rig.refusal("/v1/events?since=x").await, "since: a whole number was expected");
    assert_eq!(rig.refusal("/v1/events?after=1").await, "\"after\" is not known: since, wait");
    rig.end().await;
}

#[test]
fn others_see_no_environments_arguments_annotations_probes_and_messages() {
    let list = json!({"items": [{
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {"last": "s3cret"}, "labels": {"app": "web"}},
        "spec": {"nodeName": "edge", "containers": [{"name": "main", "image": "app:1", "args": ["--token=s3cret"],
            "env": [{"name": "TOKEN", "value": "s3cret"}],
            "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "s3cret"}]}}}],
            "volumes": [{"name": "s3cret"}]},
        "status": {"phase": "Running", "message": "s3cret", "conditions": [{"type": "Ready", "status": "True", "message": "s3cret"}],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 1, "image": "app:1",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "s3cret"}},
                "lastState": {"terminated": {"message": "s3cret"}}}]},
    }], "refused": [{"origin": "/m/a.yaml", "pod": "a", "reason": "env[0].value: s3cret"}]});
    let shown = without_secrets(&list);
    let text = shown.to_string();
    assert!(!text.contains("s3cret"), "{text}");
    let pod = &shown["items"][0];
    assert_eq!(
        (&pod["metadata"]["labels"]["app"], &pod["spec"]["containers"][0]["image"]),
        (&json!("web"), &json!("app:1"))
    );
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(
        (&container["restartCount"], &container["state"]["waiting"]["reason"]),
        (&json!(1), &json!("CrashLoopBackOff"))
    );
    assert_eq!(shown["refused"][0]["origin"], json!("/m/a.yaml"));
}

#[tokio::test]
async fn process_without_pods_reports_that_it_runs_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let places = AdminAddress::at(directory.path().join("a.sock"));
    let admin = Admin::new(|registry| Metrics::new().register(registry), Arc::new(FakeImageService::new()));
    let _running = admin.start(&places, &CancellationToken::new()).await.expect("it starts");
    for target in ["/v1/pods", "/v1/pods/a/b", "/v1/events", "/v1/node"] {
        let failure = client::ask_json::<Value>(&places.socket, Method::GET, target).await.expect_err(target);
        assert_eq!((failure.kind(), failure.to_string().as_str()), (Kind::NotFound, NOBODY), "{target}");
    }
}

#[tokio::test]
async fn process_that_waits_for_the_runtime_reports_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let places = AdminAddress::at(directory.path().join("a.sock"));
    let why = "waiting for the container runtime: nobody";
    let running = Admin::waiting(why).start(&places, &CancellationToken::new()).await.expect("it starts");
    assert_eq!(client::ask(&places.socket, Method::GET, "/healthz").await.expect("alive"), "ok\n");
    let failure = client::ask(&places.socket, Method::GET, "/readyz").await.expect_err("not ready");
    assert!(failure.to_string().ends_with(&format!("503 Service Unavailable: not ready: {why}")), "{failure:?}");
    let failure = client::ask_json::<Value>(&places.socket, Method::GET, "/v1/pods").await.expect_err("not there");
    assert_eq!((failure.kind(), failure.to_string().as_str()), (Kind::Unavailable, why));
    running.stop().await;
}

#[tokio::test]
async fn the_page_names_every_metric_of_pods() {
    let rig = Rig::start().await;
    rig.want(&["web"]);
    rig.until(&["web-edge 1/1 Running"]).await;
    // Housekeeping counts pods in its next round.
    let counted = async {
        loop {
            let text = client::ask(&rig.socket, Method::GET, "/metrics").await.expect("metrics");
            if text.contains("kubelet_active_pods{static=\"true\"} 1") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let text = tokio::time::timeout(Duration::from_secs(20), counted).await.expect("in time");
    let told = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let page = include_str!("../../../../docs/admin.md");
    let (before, after) = page.split_once("### Pods").expect("a heading");
    let (after, _) = after.split_once("\n### ").expect("a further heading");
    let rows = |part: &'static str| -> BTreeMap<&str, &str> {
        let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        rows.map(|(name, rest)| (name, rest.split(' ').next().unwrap_or_default())).collect()
    };
    let (always, mut of_pods) = (rows(before), rows(after));
    for (name, kind) in told {
        let written = of_pods.remove(name).or_else(|| always.get(name).copied());
        assert_eq!(written, Some(kind), "{name}");
    }
    // These appear after failures only.
    let rest: Vec<&str> = of_pods.into_keys().collect();
    assert_eq!(
        rest,
        [
            "imagelet_container_waiting",
            "kubelet_restarted_pods_total",
            "kubelet_run_podsandbox_errors_total",
            "kubelet_started_containers_errors_total",
        ]
    );
    rig.end().await;
}

#[tokio::test]
async fn list_is_refused_until_the_runtime_has_answered() {
    let runtime = FakeRuntimeService::new();
    runtime.faults().be_absent(cri_api::Error::new(Kind::Unavailable, "no such file"));
    let rig = Rig::on(runtime.clone()).await;
    rig.want(&["web"]);
    let (agent, desired, events) = (Arc::clone(&rig.agent), rig.desired.subscribe(), Arc::clone(&rig.events));
    let board = PodBoard { agent, desired, events, node: NodeInfo::default() };
    let why = board.known(Duration::ZERO).await.expect_err("nobody knows");
    assert!(why.starts_with("it is not known yet which pods run: "), "{why}");
    // A client waits until there is a list.
    let (list, ()) = tokio::join!(rig.list(), async {
        tokio::task::yield_now().await;
        runtime.faults().return_to_duty();
    });
    assert_eq!(list.items.len(), 1);
}
