//! The controller of ImageSets against a real API server, with the rights of deploy/fleet: two replicas, of which one works, and the
//! other one continues the waves when it is killed. The test writes the reports of nodes, each with the node's own identity. The text
//! of deploy/fleet is that of `imagelet fleet manifests`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fleet::api::{ImageSetStatus, NodeCursor};
use fleet::release::may_start;
use serde_json::{Value, json};

use crate::support::cli::PROGRAM;
use crate::support::control_plane::ControlPlane;
use crate::support::network::enter_own_network;
use crate::support::process::{Daemon, run, tool};
use crate::support::scene::Scene;

const API: &str = "/apis/imagelet.dev/v1alpha1";
/// How long the rest of the rollout may take: a Lease expires, and each wave waits for the interval of writes.
const ROLLOUT: Duration = Duration::from_secs(180);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/fleet")
}

/// The text of `imagelet fleet manifests`, and of the files of the kustomize base.
#[test]
fn manifests_are_those_of_deploy() {
    let text = |values: &[Value]| -> String {
        let yaml = |value: &Value| serde_saphyr::to_string(value).expect("YAML");
        values.iter().map(|value| format!("---\n{}", yaml(value))).collect()
    };
    let mut files: Vec<(String, String)> =
        fleet::manifests::base().into_iter().map(|(name, values)| (name.to_owned(), text(&values))).collect();
    files.push(("install.yaml".to_owned(), run(std::process::Command::new(PROGRAM).args(["fleet", "manifests"]))));
    for (name, text) in files {
        let path = deploy().join(&name);
        if std::env::var_os("FREEZE").is_some() {
            fs::create_dir_all(deploy()).expect("a directory");
            fs::write(&path, &text).expect("written");
        }
        let known = fs::read_to_string(&path).unwrap_or_default();
        assert!(known == text, "deploy/fleet/{name} differs; FREEZE=1 writes it again");
    }
}

/// Makes the kinds and rights of a fleet.
#[track_caller]
#[expect(clippy::print_stderr, reason = "says what an old API server leaves out")]
pub(super) fn install(plane: &ControlPlane) {
    // An old kubectl does not know every field of a schema, and an old server drops it.
    let apply = |name: &str| {
        let files = fleet::manifests::base();
        let (_, items) = files.into_iter().find(|(known, _)| *known == name).expect("a file of the base");
        let path = plane.file(&format!("{name}.json"));
        fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).expect("written");
        plane.kubectl(&["apply", "--validate=false", "-f", path.to_str().expect("a path of text")])
    };
    apply("crds.yaml");
    apply("rbac.yaml");
    let (major, minor) = plane.version();
    if plane.serves("admissionregistration.k8s.io/v1", "validatingadmissionpolicies") {
        apply("admission.yaml");
    } else {
        eprintln!("admission policies of a fleet are left out with Kubernetes {major}.{minor}: it has none");
    }
    plane.wait(&[
        "--for=condition=Established",
        "crd",
        "imagesets.imagelet.dev",
        "nodeimages.imagelet.dev",
        "fleets.imagelet.dev",
    ]);
}

/// Starts a replica of the controller with the service account of deploy/fleet.
#[track_caller]
pub(super) fn start_controller(plane: &ControlPlane, identity: &str) -> Daemon {
    let token = plane.token("imagelet-fleet", "imagelet-fleet-controller");
    let kubeconfig = plane.kubeconfig(identity, &json!({"token": token})).display().to_string();
    let args =
        ["fleet", "controller", "--kubeconfig", &kubeconfig, "--namespace", "imagelet-fleet", "--identity", identity];
    Daemon::start(Path::new(PROGRAM), &[&args[..], &["--metrics-address", "127.0.0.1:0"]].concat())
}

/// Answer of a process at a path of its address of metrics.
#[track_caller]
pub(super) fn ask_metrics(daemon: &Daemon, path: &str) -> String {
    let url = |line: &str| {
        let from = line.find("http://127.0.0.1:").filter(|_| line.contains("/metrics"))?;
        line[from..].split_once("/metrics").map(|(root, _)| root.to_owned())
    };
    let root = daemon.wait_for("the URL of the metrics", url);
    run(tool("curl").args(["-sSf", "--max-time", "30", &format!("{root}{path}")]))
}

/// Number of requests so far that write.
#[track_caller]
pub(super) fn api_writes(plane: &ControlPlane) -> u64 {
    let is_write = |line: &str| {
        let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
        verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    sum_of_metric(plane, "apiserver_request_total", is_write)
}

/// Sum of the series of a metric of the API server which are so.
#[track_caller]
pub(super) fn sum_of_metric(plane: &ControlPlane, name: &str, is_counted: impl Fn(&str) -> bool) -> u64 {
    let text = plane.kubectl(&["get", "--raw", "/metrics"]);
    let prefix = format!("{name}{{");
    let lines = text.lines().filter(|line| line.starts_with(&prefix) && is_counted(line));
    // Large numbers are written with an exponent.
    let numbers = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    // A sum of nothing is -0.
    format!("{:.0}", numbers.fold(0.0, |sum, number| sum + number)).parse().expect("a whole number")
}

/// A control plane with the kinds and rights of a fleet.
pub(super) struct FleetScene {
    pub(super) plane: ControlPlane,
}

impl FleetScene {
    pub(super) fn new() -> Self {
        let plane = ControlPlane::start();
        install(&plane);
        Self { plane }
    }

    /// Starts a replica with the service account of the controller.
    pub(super) fn controller(&self, identity: &str) -> Daemon {
        start_controller(&self.plane, identity)
    }

    fn set(&self, name: &str) -> Value {
        self.plane.get(&["imageset", name])
    }

    fn status(&self, name: &str) -> ImageSetStatus {
        serde_json::from_value(self.set(name)["status"].clone()).unwrap_or_default()
    }

    /// Returns the nodes that may start for a set.
    fn started(&self, set: &str) -> BTreeSet<String> {
        let object = self.set(set);
        let uid = object["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let status: ImageSetStatus = serde_json::from_value(object["status"].clone()).unwrap_or_default();
        let nodes = self.plane.get(&["nodes"]);
        let cursor = |node: &Value| NodeCursor {
            creation_time: serde_json::from_value(node["metadata"]["creationTimestamp"].clone()).expect("a time"),
            name: node["metadata"]["name"].as_str().expect("a name").to_owned(),
        };
        let all = nodes["items"].as_array().expect("a list").iter().map(cursor);
        all.filter(|node| may_start(&status, &uid, node)).map(|node| node.name).collect()
    }

    /// Sends a server-side apply with the identity of a node. Returns the status code.
    fn apply_as_node(&self, node: &str, path: &str, object: &Value) -> String {
        self.plane.node(node);
        let file = |end: &str| self.plane.file(&format!("system-node-{node}.{end}")).display().to_string();
        let url = format!("{}{API}/{path}?fieldManager=imagelet&force=true", self.plane.url());
        let mut curl = tool("curl");
        curl.args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "PATCH",
            "--cert",
            &file("crt"),
            "--key",
            &file("key"),
        ]);
        curl.args(["--cacert", &self.plane.file("ca.crt").display().to_string()]);
        curl.args(["-H", "Content-Type: application/apply-patch+yaml", "-d", &object.to_string(), &url]);
        run(&mut curl)
    }

    /// Writes the report of a node.
    fn report(&self, node: &str, set: &str, phase: &str) {
        let object = self.set(set);
        let head = json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "NodeImages", "metadata": {"name": node}});
        assert!(["200", "201"].contains(&&*self.apply_as_node(node, &format!("nodeimages/{node}"), &head)));
        let mut report = head;
        report["status"] = json!({"sets": [{
            "name": set, "uid": object["metadata"]["uid"], "generation": object["status"]["rolloutGeneration"],
            "phase": phase, "images": 1, "ready": 1,
        }]});
        assert_eq!(self.apply_as_node(node, &format!("nodeimages/{node}/status"), &report), "200");
    }
}

pub(super) fn leads(daemon: &Daemon) {
    daemon.wait_for("that it leads", |line| line.contains("this replica leads").then_some(()));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn another_controller_continues_the_waves_of_a_killed_one() {
    enter_own_network();
    let fleet = FleetScene::new();
    let images = Scene::new();
    let (name, _) = images.push_file("fleet/app:1", "a", "one");
    for node in ["n0", "n1", "n2", "n3"] {
        fleet.plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}));
    }
    let first = fleet.controller("one");
    leads(&first);
    let second = fleet.controller("two");
    assert_eq!(ask_metrics(&second, "/readyz"), "ok\n", "a standby is ready");
    assert!(ask_metrics(&second, "/metrics").contains("\nimagelet_fleet_leader 0\n"));
    let spec = json!({"images": [{"name": name}], "nodeSelector": {}, "rollout": {"maxConcurrent": 1}});
    let set =
        json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": "app"}, "spec": spec});
    fleet.plane.apply(&set);
    fleet.plane.until_object(&["imageset", "app"], "a node may start", |set| set["status"]["released"].is_string());
    let digest = fleet.status("app").resolved[0].digest.clone();
    assert!(digest.is_some_and(|digest| digest.starts_with("sha256:")));

    // The leader dies between two waves.
    let started = fleet.started("app");
    assert_eq!(started.len(), 1, "{started:?}");
    let mut done = started.clone();
    first.kill();
    started.iter().for_each(|node| fleet.report(node, "app", "Ready"));
    leads(&second);
    fleet
        .plane
        .until("it exports that it leads", || ask_metrics(&second, "/metrics").contains("\nimagelet_fleet_leader 1\n"));
    let from = Instant::now();
    while done.len() < 4 {
        let new: Vec<String> = fleet.started("app").difference(&done).cloned().collect();
        assert!(new.len() <= 1, "one node at a time: {new:?}");
        for node in new {
            fleet.report(&node, "app", "Ready");
            done.insert(node);
        }
        assert!(from.elapsed() < ROLLOUT, "{:#}", fleet.set("app")["status"]);
        std::thread::park_timeout(Duration::from_millis(500));
    }
    fleet.plane.wait(&["--for=condition=Ready", "imageset/app"]);
    let lines = fleet.plane.kubectl(&["get", "imgset"]);
    let row: Vec<&str> = lines.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(&row[..6], ["app", "4", "4", "0", "0", "Complete"], "{lines}");
    fleet.plane.until("events are written", || {
        let events = fleet.plane.get(&["events"]);
        let of_set = |event: &&Value| event["involvedObject"]["kind"] == "ImageSet";
        let reasons: BTreeSet<&str> = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(of_set)
            .filter_map(|event| event["reason"].as_str())
            .collect();
        reasons.contains("RollingOut") && reasons.contains("Complete")
    });
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kinds_explain_themselves_and_refuse_what_is_wrong() {
    enter_own_network();
    let fleet = FleetScene::new();
    // The server publishes the schemas of new kinds after a moment. Lines are wrapped.
    let text = "Number or percentage of the selected nodes that pull at the same time";
    fleet.plane.until("the kinds are explained", || {
        let explained = fleet.plane.try_kubectl(&["explain", "imageset.spec.rollout"]).stdout;
        explained.split_whitespace().collect::<Vec<_>>().join(" ").contains(text)
    });
    let refused = |spec: &Value| {
        let set = json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": "bad"}, "spec": spec});
        let file = fleet.plane.file("bad.json");
        fs::write(&file, set.to_string()).expect("written");
        let done = fleet.plane.try_kubectl(&["apply", "--validate=false", "-f", &file.display().to_string()]);
        assert_ne!(done.code, Some(0), "{spec} is accepted");
        done.stderr
    };
    let image = json!([{"name": "app:1"}]);
    for (spec, field) in [
        (json!({"images": [], "nodeSelector": {}}), "spec.images"),
        (json!({"images": [{"name": ""}], "nodeSelector": {}}), "name"),
        (json!({"images": [{"name": "a:1"}, {"name": "a:1"}], "nodeSelector": {}}), "spec.images"),
        (
            json!({"images": image, "nodeSelector": {}, "rollout": {"maxConcurrent": "many"}}),
            "spec.rollout.maxConcurrent",
        ),
        (json!({"images": image, "nodeSelector": {}, "releaseAfter": "tomorrow"}), "spec.releaseAfter"),
        (json!({"images": image, "nodeSelector": {}, "mode": "Sometimes"}), "spec.mode"),
    ] {
        let error = refused(&spec);
        assert!(error.contains(field), "{spec}: {error}");
    }
    // A node writes reports, and neither sets nor their statuses.
    fleet.plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}));
    let set = json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": "app"},
                     "spec": {"images": [{"name": "app:1"}], "nodeSelector": {}}});
    assert_eq!(fleet.apply_as_node("n0", "imagesets/app", &set), "403");
    fleet.plane.apply(&set);
    let status =
        json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": "app"}, "status": {}});
    assert_eq!(fleet.apply_as_node("n0", "imagesets/app/status", &status), "403");
    let report = json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "NodeImages", "metadata": {"name": "n1"}});
    let answer = fleet.apply_as_node("n0", "nodeimages/n1", &report);
    if fleet.plane.serves("admissionregistration.k8s.io/v1", "validatingadmissionpolicies") {
        assert_eq!(answer, "403", "a report of another node");
    }
}
