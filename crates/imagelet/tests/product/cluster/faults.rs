//! Failures of parts of a cluster: imagelet by `kill -9`, the API server, the history of etcd, and all at once. Containers keep
//! running, nothing is started twice, and in the end the API server receives the true state.

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::node::{FOREVER, NODE, container_status, is};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn node_continues_after_a_kill_of_imagelet() {
    let mut cluster = Cluster::start();
    let scene = cluster.namespace("killed");
    let pod = scene.running("stays");
    scene.running("goes");
    scene.running("again");
    let before = cluster.node.running("stays/main");
    let first = cluster.node.running("again/main");
    cluster.node.kill();

    // While imagelet is down one pod is deleted, another one is created, and one is replaced under its name.
    let scene = cluster.namespace_again("killed");
    scene.kubectl(&["delete", "pod", "again", "--force", "--grace-period=0"]);
    scene.pod("again", json!({"terminationGracePeriodSeconds": 1, "containers": [cluster.container("main", FOREVER)]}));
    scene.kubectl(&["delete", "pod", "goes", "--wait=false"]);
    scene.pod("comes", json!({"terminationGracePeriodSeconds": 1, "containers": [cluster.container("main", FOREVER)]}));
    cluster.node.start();
    let scene = cluster.namespace_again("killed");
    scene.ready("comes");
    scene.wait(&["--for=delete", "pod/goes"]);
    let again = scene.ready("again");
    assert_eq!(container_status(&again, "main").expect("a status")["restartCount"], 0);
    cluster.plane.until("the container of the first one of this name is gone", || {
        cluster.node.ran().iter().all(|ran| ran.id != first.id)
    });
    assert_eq!(cluster.node.running("stays/main"), before, "it was not started again");
    let after = scene.get(&["pod", "stays"]);
    assert_eq!(after["status"]["startTime"], pod["status"]["startTime"]);
    assert_eq!(container_status(&after, "main").expect("a status")["restartCount"], 0);
    scene.clear();
    cluster.node.nothing_is_left();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn node_continues_after_a_restart_of_the_api_server() {
    let mut cluster = Cluster::start();
    let scene = cluster.namespace("alone");
    scene.running("stays");
    let before = cluster.node.running("stays/main");
    cluster.plane.kill_server();

    // A container that ends meanwhile is started again without the API server.
    cluster.node.end_container("stays/main");
    cluster.node.eventually("it runs again", || {
        cluster.node.ran().iter().any(|ran| ran.of == "stays/main" && ran.running && ran.id != before.id)
    });
    let second = cluster.node.running("stays/main");
    cluster.plane.start_server();
    let scene = cluster.namespace_again("alone");
    let stays = scene.until(&["pod", "stays"], "the server hears of the restart", |pod| {
        container_status(pod, "main").is_some_and(|status| status["restartCount"] == 1) && is(pod, "Ready")
    });
    assert_eq!(
        container_status(&stays, "main").expect("a status")["containerID"],
        json!(format!("containerd://{}", second.id))
    );
    cluster.plane.wait(&["--for=condition=Ready", &format!("node/{NODE}")]);
    scene.running("later");

    // A compaction of etcd's history costs no pod.
    cluster.plane.compact();
    cluster.plane.kill_server();
    cluster.plane.start_server();
    let scene = cluster.namespace_again("alone");
    scene.running("last");
    assert_eq!(cluster.node.running("stays/main"), second);
    scene.clear();
    cluster.node.nothing_is_left();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_restart_without_the_api_server_keeps_pods() {
    let mut cluster = Cluster::start();
    let scene = cluster.namespace("away");
    scene.running("known");
    let before = cluster.node.running("known/main");
    // They are written within a moment.
    let kept = cluster.node.scene.scratch.join("root/cluster/pods.json");
    cluster.node.eventually("the pod and the service of the API server are on disk", || {
        let text = std::fs::read(&kept).unwrap_or_default();
        let kept: Value = serde_json::from_slice(&text).unwrap_or_default();
        kept["pods"][0]["metadata"]["name"] == "known" && kept["service"].is_object()
    });
    cluster.plane.kill_server();
    cluster.node.kill();
    // The machine was off: nothing runs of it any more.
    cluster.node.end_container("known/main");
    cluster.node.start_only();
    cluster.node.eventually("what was known before runs again", || {
        cluster.node.ran().iter().any(|ran| ran.of == "known/main" && ran.running && ran.id != before.id)
    });
    let second = cluster.node.running("known/main");
    cluster.plane.start_server();
    let scene = cluster.namespace_again("away");
    scene.until(&["pod", "known"], "it is ready, with the container that runs", |pod| {
        is(pod, "Ready")
            && container_status(pod, "main")
                .is_some_and(|status| status["containerID"] == json!(format!("containerd://{}", second.id)))
    });
    assert_eq!(cluster.node.running("known/main"), second, "the server's word changed nothing");
    scene.clear();
    cluster.node.nothing_is_left();
}
