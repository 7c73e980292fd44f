//! A source of pods that cannot be read is not an empty one: its pods keep running, and its path is reported.

use std::fs;

use serde_json::{Value, json};

use crate::support::node::{FOREVER, Node};

fn web(node: &Node) -> Value {
    node.pod("web", json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}))
}

/// Waits until `imagelet pods` and the log name this path.
#[track_caller]
fn is_reported(node: &Node, path: &str) {
    let names_it = |line: &str| line.contains(&format!("origin=\"{path}\"")) && line.contains("it cannot be listed");
    let summary = format!("refused: {path}; see `imagelet describe {path}`");
    let said = || node.imagelet.run(&["pods", "-A"]).stderr;
    node.eventually(&format!("{path} is reported"), || said().contains(&summary));
    let described = node.imagelet.ok(&["describe", path]);
    assert!(described.contains("it cannot be listed"), "{described}");
    let lines = node.log().into_iter().filter(|line| names_it(line));
    assert_eq!(lines.count(), 1, "{:#?}", node.log());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_survive_a_restart_with_a_directory_that_does_not_exist() {
    let mut node = Node::new();
    node.write("web.json", &web(&node));
    node.ready("web");
    let runs = node.running("web/main");
    node.stop();
    for missing in ["/nope", "/nope/pod.yaml"] {
        node.configure(&json!({"staticPodPath": missing}));
        node.start();
        is_reported(&node, missing);
        // The agent has listed the runtime and kept house meanwhile.
        assert_eq!(node.running("web/main"), runs);
        assert_eq!(node.sandboxes().len(), 1);
        node.stop();
    }
    // An address that does not answer may be the source of the pod as well.
    node.configure(&json!({"staticPodPath": "", "staticPodURL": "http://127.0.0.1:1/pods"}));
    node.start();
    node.eventually("the address is reported", || node.log().iter().any(|line| line.contains("cannot read pods")));
    assert_eq!(node.running("web/main"), runs);
    node.stop();
    let manifests = node.scene.scratch.join("manifests").display().to_string();
    node.configure(&json!({"staticPodPath": manifests, "staticPodURL": ""}));
    node.start();
    node.ready("web");
    assert_eq!(node.running("web/main"), runs);
    // A directory that exists and is empty means that there are no pods.
    node.stop();
    node.remove_all();
    node.start();
    node.nothing_is_left();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_survive_the_removal_of_their_directory() {
    let node = Node::new();
    node.write("web.json", &web(&node));
    node.ready("web");
    let runs = node.running("web/main");
    let (manifests, moved) = (node.scene.scratch.join("manifests"), node.scene.scratch.join("moved"));
    let path = manifests.display().to_string();
    // Moved away and back, then removed with everything in it.
    fs::rename(&manifests, &moved).expect("moved");
    is_reported(&node, &path);
    assert_eq!(node.running("web/main"), runs);
    fs::rename(&moved, &manifests).expect("moved back");
    node.eventually("nothing is wrong", || !node.imagelet.run(&["pods", "-A"]).stderr.contains(&path));
    fs::remove_dir_all(&manifests).expect("removed");
    node.eventually("the path is reported", || node.imagelet.run(&["pods", "-A"]).stderr.contains(&path));
    assert_eq!(node.running("web/main"), runs);
    fs::create_dir(&manifests).expect("made");
    node.nothing_is_left();
}
