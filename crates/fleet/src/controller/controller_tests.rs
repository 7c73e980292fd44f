//! Tests of the controller against the server in memory. The tests act as nodes; time is virtual.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use base::lock::Mutex;
use cluster::fake::FakeServer;
use credentials::PullSecret;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::{ImageSetStatus, NodeCursor, ResolvedImage, SetImage};
use crate::metric_page::{self, documented, exported, samples};
use crate::release::may_start;

const API: &str = "/apis/imagelet.dev/v1alpha1";

/// Resolves `NAME` to `sha256:NAME`, unless the name is `missing`.
#[derive(Default)]
struct Tags {
    asked: AtomicUsize,
    secrets: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl TagResolver for Tags {
    async fn resolve(&self, images: &[SetImage], secrets: &[PullSecret]) -> Vec<ResolvedImage> {
        self.asked.fetch_add(images.len(), Ordering::Relaxed);
        self.secrets.lock().extend(secrets.iter().map(|secret| format!("{}/{}", secret.namespace, secret.name)));
        let resolve = |image: &SetImage| {
            let is_missing = image.name.starts_with("missing");
            ResolvedImage {
                name: image.name.clone(),
                digest: (!is_missing).then(|| format!("sha256:{}", image.name)),
                message: is_missing.then(|| "no such tag".to_owned()),
                ..ResolvedImage::default()
            }
        };
        images.iter().map(resolve).collect()
    }
}

struct Fixture {
    server: FakeServer,
    tags: Arc<Tags>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Figures of each replica.
    metrics: Mutex<BTreeMap<String, ControllerMetrics>>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Fixture {
    fn new() -> Self {
        Self {
            server: FakeServer::new(true),
            tags: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            metrics: Mutex::default(),
        }
    }

    /// Returns the metrics of a replica as text.
    fn metrics(&self, identity: &str) -> String {
        metric_page::text(|registry| self.metrics.lock()[identity].register(registry))
    }

    /// Starts a replica, which ends with the token.
    fn replica(&self, identity: &str, leader_election: bool) -> CancellationToken {
        // Virtual time moves the clock.
        let start = tokio::time::Instant::now();
        let clock: Clock = Arc::new(move || Timestamp::from_second(1_000_000).expect("a time") + start.elapsed());
        let metrics = ControllerMetrics::default();
        self.metrics.lock().insert(identity.to_owned(), metrics.clone());
        let (namespace, identity) = ("fleet".to_owned(), identity.to_owned());
        let options = ControllerOptions { namespace, identity, leader_election, clock, metrics };
        let tags: Arc<dyn TagResolver> = Arc::<Tags>::clone(&self.tags);
        let controller = Controller::new(self.server.client(), options, tags);
        let stop = self.stop.child_token();
        let ended = stop.clone();
        self.tasks.spawn(async move { controller.run(&ended).await });
        stop
    }

    fn nodes(&self, count: usize) {
        for index in 0..count {
            self.node(&format!("n{index}"), &json!([]));
        }
    }

    fn node(&self, name: &str, taints: &Value) {
        let object = json!({
            "kind": "Node", "apiVersion": "v1", "metadata": {"creationTimestamp": "1970-01-12T13:46:40Z"},
            "spec": {"taints": taints},
        });
        self.server.put(&format!("/api/v1/nodes/{name}"), object);
    }

    fn set(&self, name: &str, generation: i64, spec: &Value) {
        let path = format!("{API}/imagesets/{name}");
        let mut object = json!({
            "kind": "ImageSet", "apiVersion": GROUP_VERSION, "metadata": {"generation": generation},
            "spec": {"images": [{"name": "app:1"}], "nodeSelector": {}},
        });
        object["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        if let Some(known) = self.server.get(&path) {
            object["status"] = known["status"].clone();
        }
        self.server.put(&path, object);
    }

    fn status(&self, name: &str) -> ImageSetStatus {
        let object = self.server.get(&format!("{API}/imagesets/{name}")).expect("the set");
        serde_json::from_value(object["status"].clone()).unwrap_or_default()
    }

    fn condition(&self, set: &str, name: &str) -> String {
        let status = self.status(set);
        let condition = status.conditions.iter().find(|condition| condition.type_ == name);
        condition.map(|condition| format!("{} {}", condition.status, condition.reason)).unwrap_or_default()
    }

    /// Writes the report of a node about sets, all in this phase.
    fn report(&self, node: &str, sets: &[&str], phase: &str) {
        let entry = |name: &&str| {
            let object = self.server.get(&format!("{API}/imagesets/{name}")).expect("the set");
            json!({
                "name": name, "uid": object["metadata"]["uid"], "generation": object["status"]["rolloutGeneration"],
                "phase": phase, "images": 1, "ready": 1,
            })
        };
        let sets: Vec<Value> = sets.iter().map(entry).collect();
        let object =
            json!({"kind": "NodeImages", "apiVersion": GROUP_VERSION, "metadata": {}, "status": {"sets": sets}});
        self.server.put(&format!("{API}/nodeimages/{node}"), object);
    }

    /// Returns the nodes that may start for a set.
    fn started(&self, set: &str, nodes: &[String]) -> Vec<String> {
        let uid = self.server.get(&format!("{API}/imagesets/{set}")).expect("the set")["metadata"]["uid"].clone();
        let (uid, status) = (uid.as_str().expect("a uid").to_owned(), self.status(set));
        let created = |name: &String| {
            let node = self.server.get(&format!("/api/v1/nodes/{name}"))?;
            let creation_time = serde_json::from_value(node["metadata"]["creationTimestamp"].clone()).ok()?;
            Some(NodeCursor { creation_time, name: name.clone() })
        };
        nodes.iter().filter(|name| created(name).is_some_and(|node| may_start(&status, &uid, &node))).cloned().collect()
    }

    /// Waits until the condition of a set has this state.
    async fn until(&self, set: &str, condition: &str, state: &str) {
        let mut changes = self.server.changes();
        let reached = async {
            while self.condition(set, condition) != state {
                changes.changed().await.expect("the server lives");
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(3600), reached).await;
        assert!(waited.is_ok(), "{set}: {condition} is {}, not {state}", self.condition(set, condition));
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("n{index}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rollout_reaches_every_node_in_waves() {
    let fixture = Fixture::new();
    fixture.nodes(7);
    fixture.set("set", 1, &json!({"rollout": {"maxConcurrent": 2}}));
    fixture.replica("one", false);
    fixture.until("set", "Progressing", "True RollingOut").await;
    assert_eq!(fixture.status("set").resolved[0].digest.as_deref(), Some("sha256:app:1"));
    let mut done = BTreeSet::new();
    let mut changes = fixture.server.changes();
    while done.len() < 7 {
        let started = fixture.started("set", &names(7));
        let busy: Vec<&String> = started.iter().filter(|name| !done.contains(*name)).collect();
        assert!(busy.len() <= 2, "{busy:?}");
        match busy.first() {
            Some(name) => {
                fixture.report(name, &["set"], "Ready");
                done.insert((*name).clone());
            }
            None => changes.changed().await.expect("the server lives"),
        }
    }
    fixture.until("set", "Ready", "True AllNodesReady").await;
    assert_eq!(fixture.tags.asked.load(Ordering::Relaxed), 1, "a tag is resolved once");
    let events = fixture.server.paths("/apis/events.k8s.io/v1/namespaces/default/events/");
    assert_eq!(events.len(), 2, "RollingOut and Complete: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_fleet_writes_nothing() {
    let fixture = Fixture::new();
    fixture.nodes(3);
    for set in ["a", "b"] {
        fixture.set(set, 1, &json!({"rollout": {"maxConcurrent": 3}}));
    }
    fixture.set("paused", 1, &json!({"rollout": {"paused": true}}));
    fixture.server.put(
        &format!("{API}/fleets/default"),
        json!({"kind": "Fleet", "apiVersion": GROUP_VERSION, "metadata": {}, "spec": {}}),
    );
    fixture.replica("one", false);
    for set in ["a", "b"] {
        fixture.until(set, "Progressing", "True RollingOut").await;
    }
    names(3).iter().for_each(|name| fixture.report(name, &["a", "b"], "Ready"));
    for set in ["a", "b"] {
        fixture.until(set, "Ready", "True AllNodesReady").await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    fixture.server.take_requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let writes: Vec<String> = fixture
        .server
        .take_requests()
        .into_iter()
        .filter(|line| !line.starts_with("WATCH") && !line.starts_with("GET"))
        .collect();
    assert_eq!(writes, Vec::<String>::new());
    let fleet = fixture.server.get(&format!("{API}/fleets/default")).expect("the fleet");
    assert_eq!(fleet["status"], json!({"nodes": 3, "reporting": 3, "imageSets": 3}));
}

#[tokio::test(start_paused = true)]
async fn another_replica_continues_when_the_leader_dies() {
    let fixture = Fixture::new();
    fixture.nodes(4);
    fixture.set("set", 1, &json!({"rollout": {"maxConcurrent": 1}}));
    let first = fixture.replica("one", true);
    fixture.until("set", "Progressing", "True RollingOut").await;
    fixture.replica("two", true);
    let lease = |fixture: &Fixture| {
        let lease =
            fixture.server.get("/apis/coordination.k8s.io/v1/namespaces/fleet/leases/imagelet-fleet-controller");
        lease.expect("the Lease")["spec"]["holderIdentity"].clone()
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lease(&fixture), "one");
    let figures = |fixture: &Fixture, identity: &str| {
        let text = fixture.metrics(identity);
        let is_counted = |line: &&str| !line.starts_with("imagelet_fleet_pass_");
        samples(&text).into_iter().filter(is_counted).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures(&fixture, "one")[..2], ["imagelet_fleet_leader 1", "imagelet_fleet_nodes 4"]);
    assert_eq!(figures(&fixture, "two"), ["imagelet_fleet_leader 0"], "the leader alone counts nodes");
    first.cancel();
    let mut changes = fixture.server.changes();
    while lease(&fixture) != "two" {
        changes.changed().await.expect("the server lives");
    }
    for _ in 0..4 {
        let started = fixture.started("set", &names(4));
        started.iter().for_each(|name| fixture.report(name, &["set"], "Ready"));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    fixture.until("set", "Ready", "True AllNodesReady").await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_the_fleet_is_over_all_sets() {
    let fixture = Fixture::new();
    fixture.nodes(6);
    let fleet = json!({"kind": "Fleet", "apiVersion": GROUP_VERSION, "metadata": {}, "spec": {"maxConcurrent": 4}});
    fixture.server.put(&format!("{API}/fleets/default"), fleet);
    for set in ["a", "b", "c"] {
        fixture.set(set, 1, &json!({"rollout": {"maxConcurrent": 3}}));
    }
    fixture.replica("one", false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let started: usize = ["a", "b", "c"].iter().map(|set| fixture.started(set, &names(6)).len()).sum();
    assert_eq!(started, 4);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_read_where_they_are_and_images_without_digest_named() {
    let fixture = Fixture::new();
    fixture.nodes(1);
    let secret =
        json!({"metadata": {}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}});
    fixture.server.put("/api/v1/namespaces/fleet/secrets/good", secret);
    fixture.set(
        "set",
        1,
        &json!({
            "images": [{"name": "app:1"}, {"name": "missing:1"}], "pullSecrets": [{"name": "good"}, {"name": "absent"}],
        }),
    );
    fixture.replica("one", false);
    fixture.until("set", "Resolved", "False Unresolved").await;
    assert_eq!(*fixture.tags.secrets.lock(), BTreeSet::from(["fleet/good".to_owned()]));
    let status = fixture.status("set");
    assert_eq!(status.resolved[1].message.as_deref(), Some("secret fleet/absent does not exist; no such tag"));
    assert!(status.released.is_some(), "the other image is rolled out");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.tags.asked.load(Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = fixture.tags.asked.load(Ordering::Relaxed);
    assert!((5..=7).contains(&asked), "the missing one alone is tried again, with growing waits: {asked}");
}

#[tokio::test(start_paused = true)]
async fn the_startup_taint_is_removed_when_images_are_there_or_it_is_late() {
    let fixture = Fixture::new();
    let taints = json!([
        {"key": "dedicated", "effect": "NoSchedule"}, {"key": "imagelet.dev/images-not-ready", "effect": "NoSchedule"},
    ]);
    ["quick", "slow"].iter().for_each(|name| fixture.node(name, &taints));
    fixture.set("set", 1, &json!({"requiredForReady": true, "rollout": {"maxConcurrent": 2}}));
    fixture.replica("one", false);
    fixture.until("set", "Progressing", "True RollingOut").await;
    fixture.report("quick", &["set"], "Ready");
    let keys = |name: &str| {
        let node = fixture.server.get(&format!("/api/v1/nodes/{name}")).expect("the node");
        node["spec"]["taints"].as_array().expect("taints").iter().map(|taint| taint["key"].clone()).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((keys("quick"), keys("slow").len()), (vec![json!("dedicated")], 2));
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(keys("slow"), [json!("dedicated")]);
    let events = fixture.server.paths("/apis/events.k8s.io/v1/namespaces/default/events/slow");
    assert_eq!(events.len(), 1, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_not_counted() {
    let fixture = Fixture::new();
    fixture.nodes(2);
    fixture.set("set", 1, &json!({"rollout": {"maxConcurrent": 2}}));
    fixture.replica("one", false);
    fixture.until("set", "Progressing", "True RollingOut").await;
    fixture.report("n0", &["set"], "Ready");
    fixture.server.remove("/api/v1/nodes/n1");
    fixture.until("set", "Ready", "True AllNodesReady").await;
    assert_eq!(fixture.status("set").nodes.map(|nodes| nodes.desired), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_finished_set_is_deleted_after_its_time() {
    let fixture = Fixture::new();
    fixture.nodes(1);
    fixture.set("set", 1, &json!({"mode": "Once", "ttlSecondsAfterFinished": 60}));
    fixture.replica("one", false);
    fixture.until("set", "Progressing", "True RollingOut").await;
    fixture.report("n0", &["set"], "Ready");
    fixture.until("set", "Progressing", "False Finished").await;
    let mut changes = fixture.server.changes();
    while fixture.server.get(&format!("{API}/imagesets/set")).is_some() {
        changes.changed().await.expect("the server lives");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_sets_and_the_page_names_each_one() {
    let fixture = Fixture::new();
    fixture.nodes(3);
    fixture.set("web", 1, &json!({"rollout": {"maxConcurrent": 3}}));
    fixture.set("deleted", 1, &json!({}));
    fixture.replica("one", false);
    fixture.until("web", "Progressing", "True RollingOut").await;
    fixture.report("n0", &["web"], "Ready");
    fixture.report("n1", &["web"], "Failed");
    fixture.server.remove(&format!("{API}/imagesets/deleted"));
    fixture.until("web", "Degraded", "True TooManyFailures").await;
    // The next pass is after the write.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let text = fixture.metrics("one");
    let of_sets: Vec<&str> =
        samples(&text).into_iter().filter(|line| line.starts_with("imagelet_fleet_set_")).collect();
    let want = [
        r#"imagelet_fleet_set_nodes{set="web",state="waiting"} 1"#,
        r#"imagelet_fleet_set_nodes{set="web",state="pulling"} 0"#,
        r#"imagelet_fleet_set_nodes{set="web",state="ready"} 1"#,
        r#"imagelet_fleet_set_nodes{set="web",state="failed"} 1"#,
        r#"imagelet_fleet_set_nodes{set="web",state="lost"} 0"#,
        r#"imagelet_fleet_set_condition{set="web",type="Ready"} 0"#,
        r#"imagelet_fleet_set_condition{set="web",type="Degraded"} 1"#,
    ];
    assert_eq!(of_sets, want);
    assert!(!text.contains("imagelet_fleet_write_failures"), "{text}");

    // A write fails once.
    fixture.server.fail("PATCH imagesets/web/status", 500);
    fixture.report("n1", &["web"], "Ready");
    fixture.report("n2", &["web"], "Ready");
    fixture.until("web", "Ready", "True AllNodesReady").await;
    let text = fixture.metrics("one");
    assert!(text.contains("\nimagelet_fleet_write_failures_total{kind=\"ImageSet\"} 1\n"), "{text}");
    assert_eq!(exported(&text), documented("### The controller of a fleet"));
}
