//! A hollow fleet: many daemons of nodes as tasks of this process, each with the identity of its node and images in memory, with a real
//! API server and a controller that is a process of its own. Counts what the API server has to do: writes, bytes of watches, memory, and
//! the time of a rollout in waves. `IMAGELET_HOLLOW_NODES` and `IMAGELET_HOLLOW_SETS` are other sizes.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cluster::ClusterClient;
use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{Error, ImageService, Kind};
use fleet::node::{Collector, ImageSpace, NodeDaemon, NodeDaemonOptions, SetBoard};
use image_manager::gc::Pins;
use image_manager::{BackoffOptions, ImageManager, LogRecorder, NamespaceAccess, Options, PullerOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fleet::{FleetScene, api_writes, leads, sum_of_metric};
use crate::support::network::enter_own_network;
use crate::support::process::Daemon;
use crate::support::scratch::Scratch;

/// How long a rollout to all nodes may take.
const ROLLOUT: Duration = Duration::from_secs(1800);
/// How long a set may take that has five hundred images.
const PATIENCE: Duration = Duration::from_secs(240);
/// How long the quiet fleet is watched.
const QUIET: Duration = Duration::from_secs(15);
/// Nodes that fail to pull an image of the last set, of ten.
const FAILING: usize = 3;

/// A disk with room for everything, and nothing to collect.
struct RoomyDisk;

#[async_trait]
impl Collector for RoomyDisk {
    async fn pin(&self, _: Pins) -> Result<(), String> {
        Ok(())
    }

    async fn space(&self) -> Option<ImageSpace> {
        let bytes = 100 << 30;
        Some(ImageSpace { capacity: bytes, free: bytes, images: 0, reclaimable: 0 })
    }

    async fn reclaim(&self, _: u64) {}

    async fn remove_unused(&self, _: &str) -> Result<bool, String> {
        Ok(true)
    }
}

/// An image of a set, by digest, so that no registry is asked.
fn image(set: &str) -> (String, FakeImage) {
    let image = FakeImage::new(set);
    (format!("r.example/{set}@{}", image.digest()), image)
}

fn node_name(node: usize) -> String {
    format!("n{node:04}")
}

fn group(number: usize) -> String {
    format!("g{:02}", number % GROUPS)
}

/// Groups of nodes; each of the many sets selects one.
const GROUPS: usize = 20;

struct HollowFleet {
    services: Vec<FakeImageService>,
    stop: CancellationToken,
    tasks: TaskTracker,
    runtime: Runtime,
    controller: Daemon,
    scene: FleetScene,
    state: Scratch,
}

/// Counters of the API server.
#[derive(Clone, Copy, Debug)]
struct Load {
    writes: u64,
    watched_bytes: u64,
    at: Instant,
}

impl HollowFleet {
    #[track_caller]
    fn new(nodes: usize, sets: usize) -> Self {
        raise_limit_of_files();
        let scene = FleetScene::new();
        let objects: Vec<Value> = (0..nodes)
            .map(|node| {
                let labels = json!({"group": group(node)});
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(node), "labels": labels}})
            })
            .collect();
        let file = scene.plane.file("nodes.json");
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()).expect("written");
        scene.plane.kubectl(&["create", "-f", &file.display().to_string()]);
        let identities: Vec<PathBuf> = (0..nodes).map(|node| scene.plane.node(&node_name(node))).collect();
        let controller = scene.controller("one");
        leads(&controller);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let mut fleet = Self {
            services: Vec::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: runtime.expect("a runtime"),
            controller,
            scene,
            state: Scratch::new(),
        };
        for (node, kubeconfig) in identities.into_iter().enumerate() {
            let service = FakeImageService::new();
            let of_group = (0..sets).filter(|set| group(*set) == group(node)).map(|set| format!("s{set}"));
            for set in of_group.chain(["all".to_owned()]) {
                let (name, image) = image(&set);
                service.publish(&name, &image);
            }
            if node % 10 >= FAILING {
                let (name, image) = image("partial");
                service.publish(&name, &image);
            }
            fleet.start(node, kubeconfig, service);
        }
        fleet
    }

    fn start(&mut self, node: usize, kubeconfig: PathBuf, fake: FakeImageService) {
        self.services.push(fake.clone());
        let directory = self.state.join(&node_name(node));
        let stop = self.stop.clone();
        self.tasks.spawn_on(
            async move {
                let client = ClusterClient::open(&kubeconfig).await.expect("a kubeconfig");
                let service: Arc<dyn ImageService> = Arc::new(fake);
                let manager = Options {
                    puller: PullerOptions {
                        serialize: false,
                        qps: 0.0,
                        linger: Duration::ZERO,
                        ..PullerOptions::default()
                    },
                    backoff: BackoffOptions {
                        initial: Duration::ZERO,
                        max: Duration::ZERO,
                        by_cause: false,
                        ..BackoffOptions::default()
                    },
                    keyring: Some(Arc::new(credentials::Keyring::new(credentials::KeyringOptions::default()))),
                    ..Options::default()
                };
                let daemon = NodeDaemon::open(NodeDaemonOptions {
                    node: node_name(node),
                    namespace: "imagelet-fleet".to_owned(),
                    client,
                    manager: Arc::new(ImageManager::new(Arc::clone(&service), Arc::new(LogRecorder), manager)),
                    service,
                    reports_layers: true,
                    collector: Arc::new(RoomyDisk),
                    access: NamespaceAccess::default(),
                    directory,
                    version: "hollow".to_owned(),
                    wall_clock: Arc::new(jiff::Timestamp::now),
                    random: cluster::retry::system_random(),
                    pods_pull: Arc::new(|| false),
                    board: SetBoard::default(),
                });
                daemon.await.run(&stop).await;
            },
            self.runtime.handle(),
        );
    }

    /// Makes sets of one image each: name, selector, rollout.
    #[track_caller]
    fn put(&self, sets: &[(String, Value, Value)]) {
        let specs = sets.iter().map(|(name, selector, rollout)| {
            (&**name, json!({"images": [{"name": image(name).0}], "nodeSelector": selector, "rollout": rollout}))
        });
        self.apply(&specs.collect::<Vec<_>>());
    }

    /// Makes or changes sets.
    #[track_caller]
    fn apply(&self, specs: &[(&str, Value)]) {
        let object = |(name, spec): &(&str, Value)| json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": name}, "spec": spec});
        let items: Vec<Value> = specs.iter().map(object).collect();
        let file = self.scene.plane.file("sets.json");
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).expect("written");
        self.scene.plane.kubectl(&["apply", "--validate=false", "-f", &file.display().to_string()]);
    }

    /// Waits until a set is such: five hundred pulls take a while on a busy machine.
    #[track_caller]
    fn until_set(&self, set: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let from = Instant::now();
        loop {
            let object = self.scene.plane.get(&["imageset", set]);
            if wanted(&object) {
                return object;
            }
            assert!(from.elapsed() < PATIENCE, "{what}: never: {:#}", object["status"]["nodes"]);
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }

    /// Waits until a condition of a set has a reason, and returns the status of the set.
    #[track_caller]
    fn until_reason(&self, set: &str, condition: &str, reason: &str) -> Value {
        let what = format!("{condition} has the reason {reason}");
        let object = self.scene.plane.until_object(&["imageset", set], &what, |set| {
            let conditions = set["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == condition && c["reason"] == reason)
        });
        object["status"].clone()
    }

    /// Waits until every set is ready, and returns how long that took.
    #[track_caller]
    fn until_ready(&self) -> Duration {
        let from = Instant::now();
        loop {
            let sets = self.scene.plane.get(&["imagesets"]);
            let waiting: Vec<&Value> =
                sets["items"].as_array().into_iter().flatten().filter(|set| !is_ready(set)).collect();
            if waiting.is_empty() {
                return from.elapsed();
            }
            assert!(from.elapsed() < ROLLOUT, "{} sets are not ready: {:#}", waiting.len(), waiting[0]["status"]);
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }

    /// Number of nodes that asked for the image of a set.
    fn asked(&self, set: &str) -> usize {
        let name = image(set).0;
        let asked = |service: &&FakeImageService| {
            service.calls().iter().any(|call| call.kind() == CallKind::PullImage && format!("{call:?}").contains(&name))
        };
        self.services.iter().filter(asked).count()
    }

    #[track_caller]
    fn load(&self) -> Load {
        Load {
            writes: api_writes(&self.scene.plane),
            watched_bytes: sum_of_metric(&self.scene.plane, "apiserver_watch_events_sizes_sum", |line| {
                line.contains("imagelet.dev")
            }),
            at: Instant::now(),
        }
    }
}

impl Drop for HollowFleet {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
        self.runtime.block_on(self.tasks.wait());
    }
}

fn is_ready(set: &Value) -> bool {
    let conditions = set["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let is_current = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    is_current && ready.any(|condition| condition["status"] == "True")
}

/// A task has a connection or two.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("raise the limit of open files");
}

/// Resident memory of a process in bytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn size(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

/// Words about what happened from `before` to `after`.
fn figures(before: Load, after: Load) -> String {
    let (writes, seconds) = (after.writes - before.writes, after.at.duration_since(before.at).as_secs_f64());
    let mib = (after.watched_bytes - before.watched_bytes) as f64 / f64::from(1 << 20);
    format!("{seconds:.0} s, {writes} writes ({:.1}/s), {mib:.1} MiB watched", writes as f64 / seconds)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn hollow_fleet_rolls_out_in_waves_and_is_quiet_then() {
    enter_own_network();
    let (nodes, sets) = (size("IMAGELET_HOLLOW_NODES", 100), size("IMAGELET_HOLLOW_SETS", 10));
    let waves = if nodes > 200 { 20 } else { 2 };
    let fleet = HollowFleet::new(nodes, sets);
    let mut said = format!("hollow fleet: {nodes} nodes, {sets} sets\n");
    let mut note = |what: &str, text: String| writeln!(said, "hollow fleet: {what}: {text}").expect("text");

    // Many sets at once, each for one group of nodes.
    let before = fleet.load();
    let grouped = |set: usize| {
        (format!("s{set}"), json!({"matchLabels": {"group": group(set)}}), json!({"maxConcurrent": "100%"}))
    };
    fleet.put(&(0..sets).map(grouped).collect::<Vec<_>>());
    fleet.until_ready();
    note("sets of groups", figures(before, fleet.load()));

    // One set for all nodes, in waves.
    let before = fleet.load();
    let share = nodes.div_ceil(waves);
    fleet.put(&[("all".to_owned(), json!({}), json!({"maxConcurrent": share}))]);
    fleet.until_ready();
    assert_eq!(fleet.asked("all"), nodes);
    note(&format!("a rollout in {waves} waves"), figures(before, fleet.load()));

    // Nothing to do: reports that follow the last change are written first.
    std::thread::park_timeout(Duration::from_secs(5));
    let before = fleet.load();
    std::thread::park_timeout(QUIET);
    let quiet = fleet.load();
    note("quiet", figures(before, quiet));
    let limit = QUIET.as_secs();
    let writes = quiet.writes - before.writes;
    assert!(writes < limit, "a quiet fleet writes less than once a second: {writes} in {limit} s");

    // Three nodes of ten fail: the rollout stops, and says why.
    let before = fleet.load();
    fleet.put(&[("partial".to_owned(), json!({}), json!({"maxConcurrent": "10%", "maxFailed": "5%"}))]);
    let stopped = fleet.until_reason("partial", "Progressing", "TooManyFailures");
    let asked = fleet.asked("partial");
    assert!(asked < nodes / 2, "{asked} of {nodes} nodes have tried: {stopped:#}");
    let groups = stopped["failures"].as_array().map_or(0, Vec::len);
    assert_eq!(groups, 1, "one cause: {stopped:#}");
    note("three of ten fail", format!("{}; {asked} nodes have tried", figures(before, fleet.load())));
    std::thread::park_timeout(Duration::from_secs(3));
    assert_eq!(fleet.asked("partial"), asked, "no further node starts");

    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    note("memory of the controller", mib(memory(fleet.controller.pid())));
    note("memory of the API server", mib(memory(fleet.scene.plane.server_pid())));
    println!("{said}");
}

/// Images of the large set.
const MANY: usize = 500;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn wrong_sets_and_registries_are_reported_and_mended() {
    enter_own_network();
    let nodes = 3;
    let mut fleet = HollowFleet::new(nodes, 0);
    let everywhere = json!({"maxConcurrent": "100%", "maxFailed": "100%"});
    let name_of = |number: usize| image(&format!("m{number}")).0;
    for service in &fleet.services {
        for number in (0..MANY).filter(|number| *number != 250) {
            let (name, image) = image(&format!("m{number}"));
            service.publish(&name, &image);
        }
    }

    // Of five hundred images one does not exist: every node has the others, and the failure is one group.
    let spec = |numbers: &dyn Fn(usize) -> bool| {
        let images: Vec<Value> = (0..MANY).filter(|n| numbers(*n)).map(|n| json!({"name": name_of(n)})).collect();
        json!({"images": images, "nodeSelector": {}, "rollout": everywhere})
    };
    fleet.apply(&[("many", spec(&|_| true))]);
    let all_failed = |set: &Value| set["status"]["nodes"]["failed"] == nodes;
    let set = fleet.until_set("many", "every node reports the failure", all_failed);
    let failures = set["status"]["failures"].as_array().expect("groups").clone();
    assert_eq!(failures.len(), 1, "{failures:#?}");
    assert_eq!((&failures[0]["image"], &failures[0]["reason"]), (&json!(name_of(250)), &json!("ImageNotFound")));
    fleet.until_reason("many", "Degraded", "NodesFailed");
    let report = fleet.scene.plane.get(&["nodeimages", &node_name(0)])["status"].clone();
    let rows = report["images"].as_array().expect("rows");
    let is_missing = |row: &&Value| row["name"] == name_of(250) && row["phase"] == "Failed";
    assert_eq!(rows.iter().filter(is_missing).count(), 1, "images that are not ready are not cut off");
    assert_eq!((&report["sets"][0]["images"], &report["sets"][0]["ready"]), (&json!(500), &json!(499)));
    // The set is edited while nodes retry.
    fleet.apply(&[("many", spec(&|number| number != 250))]);
    fleet.until_ready();

    // A selector that matches nothing, and then everything.
    let of = |label: Value| json!({"images": [{"name": image("all").0}], "nodeSelector": label, "rollout": everywhere});
    fleet.apply(&[("all", of(json!({"matchLabels": {"no": "node"}})))]);
    fleet.until_reason("all", "Progressing", "NoNodesSelected");
    assert_eq!(fleet.asked("all"), 0);
    fleet.apply(&[("all", of(json!({})))]);
    fleet.until_ready();
    assert_eq!(fleet.asked("all"), nodes);

    // A registry that answers 429 to everybody: no node gives up.
    let (limited, limited_image) = image("limited");
    let too_many = Error::new(Kind::ResourceExhausted, "toomanyrequests");
    for service in &fleet.services {
        service.publish(&limited, &limited_image);
        let error = too_many.clone().with_retry_after(Duration::from_secs(5));
        service.faults().fail(CallKind::PullImage, error);
    }
    fleet.apply(&[("limited", json!({"images": [{"name": limited}], "nodeSelector": {}, "rollout": everywhere}))]);
    let set = fleet.until_set("limited", "every node waits", all_failed);
    assert_eq!(set["status"]["failures"][0]["reason"], "RateLimited", "{:#}", set["status"]);
    fleet.services.iter().for_each(|service| service.faults().clear(CallKind::PullImage));
    fleet.until_ready();

    // A set is deleted while nodes pull, and the API server is away for a while.
    let (slow, slow_image) = image("slow");
    let gates: Vec<_> = fleet
        .services
        .iter()
        .map(|service| {
            service.publish(&slow, &slow_image);
            service.faults().hold(CallKind::PullImage)
        })
        .collect();
    fleet.apply(&[("slow", json!({"images": [{"name": slow}], "nodeSelector": {}, "rollout": everywhere}))]);
    let plane = &fleet.scene.plane;
    plane.until("every node pulls", || gates.iter().all(|gate| gate.waiting() == 1));
    plane.kubectl(&["delete", "imageset", "slow"]);
    plane.until("no node pulls it", || gates.iter().all(|gate| gate.waiting() == 0));
    fleet.scene.plane.kill_server();
    std::thread::park_timeout(Duration::from_secs(5));
    fleet.scene.plane.start_server();
    gates.iter().for_each(cri_api::testing::Gate::open);
    fleet.apply(&[("slow", json!({"images": [{"name": slow}], "nodeSelector": {}, "rollout": everywhere}))]);
    fleet.until_ready();
    assert_eq!(fleet.asked("slow"), nodes);
}
