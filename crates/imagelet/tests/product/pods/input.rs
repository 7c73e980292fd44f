//! Bad input: every manifest that cannot be a pod is refused with the position of the error, and nothing else changes: running pods
//! keep running, and new ones are started.

use std::fs;

use serde_json::{Value, json};

use crate::support::node::{FOREVER, Node};

fn good(node: &Node, name: &str) -> Value {
    node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}))
}

/// A good one with one thing that is not.
fn but(node: &Node, name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = good(node, name);
    change(&mut pod);
    pod
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_no_pod_is_refused_by_its_place_and_nothing_else_is_touched() {
    let node = Node::new();
    node.write("good.json", &good(&node, "good"));
    node.ready("good");
    let runs = node.running("good/main");
    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let device = json!({"limits": {"example.com/device": 1}});
    let cases = [
        ("claim", but(&node, "claim", |p| p["spec"]["volumes"] = claim), "spec.volumes[0].persistentVolumeClaim"),
        (
            "device",
            but(&node, "device", |p| p["spec"]["containers"][0]["resources"] = device),
            "spec.containers[0].resources.limits[example.com/device]",
        ),
        ("name", but(&node, "Not_A_Name", |_| {}), "metadata.name"),
        ("image", but(&node, "image", |p| p["spec"]["containers"][0]["image"] = json!("")), "spec.containers[0].image"),
        (
            "unknown",
            but(&node, "unknown", |p| p["spec"]["containers"][0]["imagePullPolcy"] = json!("Always")),
            "spec.containers[0].imagePullPolcy",
        ),
        ("type", but(&node, "type", |p| p["spec"]["hostNetwork"] = json!("yes")), "spec.hostNetwork"),
        ("none", but(&node, "none", |p| p["spec"]["containers"] = json!([])), "spec.containers"),
        ("kind", but(&node, "kind", |p| p["kind"] = json!("Deployment")), "Deployment"),
    ];
    for (file, manifest, _) in &cases {
        node.write(&format!("{file}.json"), manifest);
    }
    node.write_bytes("broken.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: broken\n");
    node.write_bytes("empty.yaml", b"");
    node.write_bytes("binary.yaml", &[0xFF, 0xFE, 0, 1, 2, 3]);
    // Two files with the same pod: one of them is used, and the other is reported.
    node.write("twice.json", &good(&node, "good"));
    node.write("late.json", &good(&node, "late"));
    node.ready("late");
    let said = |words: &[&str]| node.log().iter().any(|line| words.iter().all(|word| line.contains(word)));
    for (file, _, place) in &cases {
        node.eventually(&format!("{file}.json is refused at {place}"), || said(&[&format!("{file}.json"), place]));
    }
    for file in ["broken.yaml", "binary.yaml", "twice.json"] {
        node.eventually(&format!("{file} is refused"), || said(&[file]));
    }
    assert_eq!(node.running("good/main"), runs);
    let names: Vec<String> = node.pods().into_keys().collect();
    assert_eq!(names, ["good", "late"]);
    assert_eq!(node.sandboxes().len(), 2, "nothing was started for what was refused");

    // The list of pods has one line about all refusals, and `describe` has the reasons.
    let listed = node.imagelet.run(&["pods"]);
    let lines: Vec<&str> = listed.stderr.lines().filter(|line| line.contains("refused")).collect();
    assert!(matches!(lines.as_slice(), [one] if one.contains(" more; see `imagelet describe ")), "{}", listed.stderr);
    assert!(listed.stderr.contains("1 manifest is skipped, since only pods run on a node: "), "{}", listed.stderr);
    let described = node.imagelet.ok(&["describe", "kind.json"]);
    assert!(described.contains("Skipped") && described.contains("Deployment"), "{described}");
    let described = node.imagelet.ok(&["describe", "claim.json"]);
    assert!(described.contains("Refused") && described.contains("persistentVolumeClaim"), "{described}");

    // A manifest that becomes bad holds its pod; one that becomes good is taken; the removal of one ends its pod.
    node.write_bytes("good.json", b"{\"apiVersion\": \"v1\", \"kind\": \"Pod\", ");
    node.eventually("what is half written is told", || said(&["/good.json"]));
    node.write("unknown.json", &good(&node, "unknown"));
    node.ready("unknown");
    assert_eq!(node.running("good/main"), runs, "what runs from a manifest that is bad now goes on");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_manifest_that_is_written_in_pieces_is_never_a_deletion() {
    let node = Node::new();
    let manifest = node.scene.scratch.join("manifests/web.json");
    node.write("web.json", &good(&node, "web"));
    node.ready("web");
    let runs = node.running("web/main");
    // As editors and `cp` do: truncated, then a part, then the rest; the same pod in the end.
    let text = good(&node, "web").to_string();
    for _ in 0..20 {
        for part in [0, text.len() / 3, text.len() / 2] {
            fs::write(&manifest, &text[..part]).expect("write a part");
            node.pods();
        }
        fs::write(&manifest, &text).expect("write all of it");
    }
    node.ready("web");
    assert_eq!(node.running("web/main"), runs);
    // A change is another pod: the old one is ended first, the new one has its name.
    let mut changed = good(&node, "web");
    changed["spec"]["containers"][0]["env"] = json!([{"name": "COLOUR", "value": "blue"}]);
    node.write("web.json", &changed);
    node.eventually("the new one runs", || node.ran().iter().any(|ran| ran.running && ran.id != runs.id));
    assert_eq!(node.ran().iter().filter(|ran| ran.running).count(), 1, "never both: {:?}", node.ran());
    assert_eq!(node.in_container("web/main", "echo $COLOUR").trim(), "blue");
    node.clear();
}
