//! Pods that use more of the node's disk than they may, or than there is.

use serde_json::json;

use crate::support::Imagelet;
use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::disk::{LoopFs, Space};
use crate::support::node::{FOREVER, NODE, is};
use crate::support::random::noise_of;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_beyond_their_limits_are_evicted() {
    let cluster = Cluster::start();
    play(&cluster, &[("volume", volume), ("writable-layer", writable_layer)]);
}

fn volume(scene: &Namespace<'_>) {
    let script = format!("dd if=/dev/zero of=/v/file bs=1M count=3 2>/dev/null; {FOREVER}");
    let mut main = scene.cluster.container("main", &script);
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "2Mi"}}]);
    scene.pod("greedy", json!({"terminationGracePeriodSeconds": 30, "volumes": volumes, "containers": [main]}));
    let modest = scene.cluster.container("main", FOREVER);
    scene.pod("modest", json!({"terminationGracePeriodSeconds": 1, "volumes": volumes, "containers": [modest]}));
    let greedy = scene.phase("greedy", "Failed");
    let status = &greedy["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    assert_eq!(status["message"], "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ");
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let disrupted = conditions.into_iter().find(|condition| condition["type"] == "DisruptionTarget");
    assert_eq!(disrupted.map(|condition| &condition["reason"]), Some(&json!("TerminationByKubelet")), "{status:#}");
    assert!(!scene.events("greedy", "Evicted").is_empty());
    scene.ready("modest");
}

fn writable_layer(scene: &Namespace<'_>) {
    let script = format!("dd if=/dev/zero of=/file bs=1M count=3 2>/dev/null; {FOREVER}");
    let mut main = scene.cluster.container("main", &script);
    main["resources"] = json!({"limits": {"ephemeral-storage": "2Mi"}, "requests": {"ephemeral-storage": "1Mi"}});
    scene.pod("writer", json!({"terminationGracePeriodSeconds": 1, "containers": [main]}));
    let writer = scene.phase("writer", "Failed");
    let status = &writer["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    let expected = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(status["message"], expected);
}

/// Disk of the node in MiB. A fifth of it must stay free.
const DISK: u64 = 256;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_full_disk_costs_the_pod_that_filled_it() {
    let mut cluster = Cluster::idle_on(
        Some(LoopFs::ext4(DISK)),
        &json!({
            "evictionHard": {"nodefs.available": "20%", "imagefs.available": "20%"},
            "evictionPressureTransitionPeriod": "15s",
            "imageMinimumGCAge": "0s",
            "imageGC": {"protectPrePulled": "0s"},
        }),
    );
    let disk = cluster.node.scene.scratch.join("root");
    cluster.node.start();
    cluster.is_ready();
    // An image that nobody uses goes first, and is not enough.
    let (unused, _) = cluster.node.scene.push_file("team/unused:1", "noise", noise_of("unused", 8 << 20));
    let runtime = Imagelet::remote(&cluster.node.containerd.endpoint());
    runtime.ok(&["pull", &unused]);
    let scene = cluster.namespace("full");
    let writer = |name: &str, request: &str, mebibytes: u64| {
        let script =
            format!("dd if=/dev/zero of=/v/file bs=1M count={mebibytes} 2>/dev/null; touch /tmp/written; {FOREVER}");
        let mut main = cluster.container("main", &script);
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        main["resources"] = json!({"requests": {"ephemeral-storage": request}});
        main["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/written"]}, "periodSeconds": 1});
        let volumes = json!([{"name": "v", "emptyDir": {}}]);
        scene.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": volumes}));
    };
    // The first one uses more than the other, but less than it requested.
    writer("modest", "100Mi", 40);
    scene.ready("modest");
    let before = cluster.node.running("modest/main");
    writer("greedy", "1Mi", DISK);
    let greedy = scene.phase("greedy", "Failed");
    let status = &greedy["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    let message = status["message"].as_str().unwrap_or_default();
    let head = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
    assert!(message.starts_with(head) && message.contains(", available: "), "{message}");
    let has_pressure = |node: &serde_json::Value| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let pressure = conditions.into_iter().find(|condition| condition["type"] == "DiskPressure");
        pressure.is_some_and(|pressure| pressure["status"] == "True")
    };
    cluster.plane.until_object(&["node", NODE], "it has disk pressure", has_pressure);
    cluster.plane.until("the disk has room again", || {
        let space = Space::of(&disk);
        space.free > space.capacity / 5
    });
    cluster.plane.until_object(&["node", NODE], "the pressure goes", |node| !has_pressure(node));
    assert!(!runtime.images().iter().any(|image| image.to_string().contains("team/unused")), "it was collected");
    assert_eq!(cluster.node.running("modest/main"), before, "the other one runs on");
    assert!(is(&scene.get(&["pod", "modest"]), "Ready"));
    // Pods come again, through the scheduler.
    scene.running("later");
    scene.clear();
    cluster.node.nothing_is_left();
}
