//! Pods that ask for the same port of the node.

use serde_json::{Value, json};

use crate::support::network::{NODE_IP, get};
use crate::support::node::Node;

/// A pod that serves its own name at port 18080 of the node.
fn server(node: &Node, name: &str) -> Value {
    let serve = format!("mkdir /srv; echo {name} > /srv/name; exec httpd -f -p 8080 -h /srv");
    let mut main = node.container("main", &serve);
    main["ports"] = json!([{"containerPort": 8080, "hostPort": 18080}]);
    node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [main]}))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_later_of_two_pods_with_one_host_port_is_rejected() {
    let mut node = Node::new();
    let served = || get(&format!("{NODE_IP}:18080"), "/name");
    node.write("z.json", &server(&node, "first"));
    node.ready("first");
    let first = node.running("first/main");
    node.write("a.json", &server(&node, "second"));
    let rejected = node.phase("second", "Failed");
    assert_eq!(rejected["status"]["reason"], "NodePorts", "{rejected:#}");
    assert_eq!(
        rejected["status"]["message"],
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    );
    assert!(node.events("second").iter().any(|(reason, _)| reason == "NodePorts"), "{:?}", node.events("second"));
    // After a restart, the one that runs still has the port.
    node.stop();
    node.start();
    assert_eq!(node.phase("second", "Failed")["status"]["reason"], "NodePorts");
    assert_eq!(node.running("first/main"), first);
    assert_eq!(node.sandboxes().len(), 1, "nothing was made for the second one");
    node.eventually("the first one serves", || served().is_some_and(|name| name.trim() == "first"));
    // When it ends, the other one has its turn.
    node.remove("z.json");
    node.ready("second");
    node.eventually("the second one serves", || served().is_some_and(|name| name.trim() == "second"));
    node.clear();
}
