//! The control plane of these tests by itself: it answers kubectl, forgets on demand, and is itself again after a `kill -9`.

use serde_json::json;

use crate::support::control_plane::ControlPlane;
use crate::support::network::enter_own_network;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_control_plane_answers_and_survives_a_kill() {
    enter_own_network();
    let mut plane = ControlPlane::with_managers();
    let settings = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
               "data": {"key": value}})
    };
    plane.apply(&settings("one"));
    plane.kill_server();
    assert_ne!(plane.try_kubectl(&["get", "configmaps"]).code, Some(0), "nobody answers");
    plane.start_server();
    assert_eq!(plane.get(&["configmap", "settings"])["data"]["key"], "one");
    plane.apply(&settings("two"));
    plane.compact();
    assert_eq!(plane.get(&["configmap", "settings"])["data"]["key"], "two");

    // A node's identity reads its own node, and no other's.
    let file = plane.node("edge");
    let as_node = |args: &[&str]| plane.command_as(&file, args).output().expect("start kubectl");
    assert!(as_node(&["auth", "can-i", "create", "nodes"]).status.success());
    let denied = String::from_utf8_lossy(&as_node(&["get", "secrets", "-A"]).stderr).into_owned();
    assert!(denied.contains("User \"system:node:edge\" cannot list resource \"secrets\""), "{denied}");
}
