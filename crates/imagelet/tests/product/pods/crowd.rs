//! Thirty pods start at once and end at once, while another one stays. Their image is not present at first, and is pulled once.

use serde_json::{Value, json};

use crate::support::Packing;
use crate::support::node::{FOREVER, Node, is};
use crate::support::pods::idle_image;

const PODS: usize = 30;

fn pod(node: &Node, name: &str) -> Value {
    node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn thirty_pods_come_and_go_at_once() {
    let node = Node::new();
    node.write("stays.json", &pod(&node, "stays"));
    node.ready("stays");
    let stays = node.running("stays/main");
    let layers = [node.scene.file_layer("crowd", "crowd", Packing::Gzip)];
    let image = node.scene.registry.push(&node.scene.layout, &idle_image(&node.scene, &layers), "team/crowd:1");
    for number in 0..PODS {
        let mut pod = pod(&node, &format!("crowd-{number}"));
        pod["spec"]["containers"][0]["image"] = json!(image);
        node.write(&format!("crowd-{number}.json"), &pod);
    }
    node.eventually("all of them are ready", || {
        let pods = node.pods();
        pods.len() == PODS + 1 && pods.values().all(|pod| is(pod, "Ready"))
    });
    let addresses: std::collections::BTreeSet<String> =
        node.pods().values().map(|pod| pod["status"]["podIP"].as_str().expect("an address").to_owned()).collect();
    assert_eq!(addresses.len(), PODS + 1, "each has its own");
    assert!(node.ran().iter().all(|ran| ran.running && ran.attempt == 0), "each was started once: {:?}", node.ran());
    for number in 0..PODS {
        node.remove(&format!("crowd-{number}.json"));
    }
    node.eventually("only one is left", || node.ran().len() == 1 && node.pods().len() == 1);
    assert_eq!(node.running("stays/main"), stays);
    node.clear();
}
