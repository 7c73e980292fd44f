//! Pods that use more of the node's disk than they may.

use serde_json::json;

use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::node::FOREVER;

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
