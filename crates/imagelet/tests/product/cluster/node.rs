//! The Node: registered, Ready, described as a kubelet's, with its lease, its images, its labels and its taints. Also the case of
//! two nodes with one name, and the deletion of the Node.

use serde_json::{Value, json};

use crate::support::Imagelet;
use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::network::NODE_IP;
use crate::support::node::NODE;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_node_registers_and_is_described_as_a_kubelets() {
    let cluster = Cluster::with(&json!({"nodeLabels": ["example.com/rack=r1"]}));
    play(&cluster, &[("wide", wide), ("describe", describe), ("lease", lease), ("images", images)]);
}

fn wide(scene: &Namespace<'_>) {
    let plane = &scene.cluster.plane;
    let table = plane.kubectl(&["get", "nodes", "-o", "wide"]);
    let mut lines = table.lines();
    let (head, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert!(head.starts_with("NAME") && head.contains("CONTAINER-RUNTIME"), "{table}");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..2], [NODE, "Ready"], "{table}");
    assert!(cells.contains(&NODE_IP), "{table}");
    assert!(row.contains("containerd://"), "{table}");
    assert!(!row.contains("<unknown>"), "{table}");
    assert_eq!(lines.next(), None, "{table}");
}

fn describe(scene: &Namespace<'_>) {
    let plane = &scene.cluster.plane;
    let text = plane.kubectl(&["describe", "node", NODE]);
    for word in [
        "kubernetes.io/hostname=",
        "kubernetes.io/os=linux",
        "example.com/rack=r1",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "KubeletReady",
        "InternalIP:",
        "Capacity:",
        "Allocatable:",
        "ephemeral-storage:",
        "Kernel Version:",
        "Container Runtime Version:",
    ] {
        assert!(text.contains(word), "describe does not say {word}:\n{text}");
    }
    let node = plane.get(&["node", NODE]);
    let status = &node["status"];
    let conditions: Vec<(&str, &str)> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| Some((c["type"].as_str()?, c["status"].as_str()?)))
        .collect();
    for wanted in [("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True")]
    {
        assert!(conditions.contains(&wanted), "{wanted:?} is not in {conditions:?}");
    }
    assert_eq!(status["capacity"]["pods"], "110");
    for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
        assert!(status["allocatable"][resource].is_string(), "no {resource} in {status:#}");
    }
    let info = &status["nodeInfo"];
    for field in ["machineID", "bootID", "kernelVersion", "osImage", "kubeletVersion", "architecture"] {
        assert!(info[field].as_str().is_some_and(|value| !value.is_empty()), "no {field} in {info:#}");
    }
}

fn lease(scene: &Namespace<'_>) {
    let plane = &scene.cluster.plane;
    let of = ["lease", NODE, "-n", "kube-node-lease"];
    let first = plane.get(&of);
    assert_eq!((&first["spec"]["holderIdentity"], &first["spec"]["leaseDurationSeconds"]), (&json!(NODE), &json!(40)));
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &plane.get(&["node", NODE])["metadata"]["uid"]));
    let text = |lease: &Value| lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
    let then = text(&first);
    let second = plane.until_object(&of, "it is renewed", |lease| text(lease) > then);
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"], "one and the same lease");
}

fn images(scene: &Namespace<'_>) {
    let node = &scene.cluster.node;
    let busybox = &node.image;
    let (small, _) = node.scene.push_file("team/small:1", "etc/small", "s");
    Imagelet::remote(&node.containerd.endpoint()).ok(&["pull", &small]);
    let listed = scene.cluster.plane.until_object(&["node", NODE], "the new image is in its status", |node| {
        node["status"]["images"].to_string().contains("team/small")
    });
    let images = listed["status"]["images"].as_array().expect("a list of images");
    let sizes: Vec<u64> = images.iter().map(|image| image["sizeBytes"].as_u64().expect("a size")).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "the largest first: {sizes:?}");
    let names = listed["status"]["images"].to_string();
    assert!(names.contains(busybox.as_str()), "{busybox} is not in {names}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_node_keeps_its_place() {
    let mut cluster = Cluster::with(&json!({
        "nodeLabels": ["example.com/rack=r1"],
        "registerWithTaints": ["imagelet.dev/partial=:NoSchedule"],
        "providerID": "example://rack/edge",
    }));
    let plane = &cluster.plane;
    let first = plane.get(&["node", NODE]);
    assert_eq!(first["spec"]["providerID"], "example://rack/edge");
    assert!(first["spec"]["taints"].to_string().contains("imagelet.dev/partial"), "{:#}", first["spec"]);

    // The scheduler sends nothing there that does not tolerate it.
    plane.apply(&crate::support::cluster::pod("shy", json!({"containers": [cluster.container("main", "true")]})));
    let shy = plane.until_object(&["pod", "shy"], "it cannot be scheduled", |pod| {
        pod["status"]["conditions"].to_string().contains("Unschedulable")
    });
    // Newer schedulers do not name the taint.
    assert!(shy["status"]["conditions"].to_string().contains("taint"), "{:#}", shy["status"]);
    plane.kubectl(&["taint", "node", NODE, "imagelet.dev/partial-"]);
    plane.kubectl(&["label", "node", NODE, "example.com/by-hand=yes"]);
    plane.until_object(&["pod", "shy"], "it ran", |pod| pod["status"]["containerStatuses"].is_array());
    plane.kubectl(&["delete", "pod", "shy", "--now"]);

    // A restart is the same node: nothing that people changed is changed back.
    cluster.restart();
    let plane = &cluster.plane;
    plane.wait(&["--for=condition=Ready", &format!("node/{NODE}")]);
    let again = plane.get(&["node", NODE]);
    assert_eq!(again["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(again["metadata"]["labels"]["example.com/by-hand"], "yes");
    assert!(!again["spec"]["taints"].to_string().contains("imagelet.dev/partial"), "{:#}", again["spec"]);

    // A second one of this name, elsewhere, for whose clock the first one has been silent for an hour: it says so, and ends.
    let elsewhere = cluster.node.scene.scratch.directory("elsewhere");
    let manifests = elsewhere.join("manifests").display().to_string();
    std::fs::create_dir_all(&manifests).expect("create a directory");
    let root = elsewhere.join("root").display().to_string();
    let second = cluster.node.imagelet.clone().clock_set_by(3600);
    let said = second.run(&["--root", &root, "--port", "0", "run", "--manifests", &manifests]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    let line = said.stderr.lines().last().unwrap_or_default();
    assert!(line.contains(&format!("the name of this node, {NODE}, is taken")), "{}", said.stderr);
    assert!(line.contains("renews its Lease") && line.contains("--node-name"), "{}", said.stderr);
    let after = plane.get(&["node", NODE]);
    assert_eq!(after["metadata"]["uid"], first["metadata"]["uid"]);

    // After a deletion by hand, a restart registers it again.
    plane.kubectl(&["delete", "node", NODE]);
    cluster.restart();
    let plane = &cluster.plane;
    let new = plane.until_object(&["node", NODE], "it has registered again", |_| true);
    assert_ne!(new["metadata"]["uid"], first["metadata"]["uid"]);
    plane.wait(&["--for=condition=Ready", &format!("node/{NODE}")]);
}
