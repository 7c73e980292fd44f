//! Pods of an API server on a node: they run, are described, end in order, are created again under the same name, and are refused
//! with a reason if this node cannot run them.

use serde_json::{Value, json};

use super::newer;
use crate::support::cluster::{Cluster, Namespace, play, pod};
use crate::support::network::NODE_IP;
use crate::support::node::{FOREVER, NODE, container_status, is};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_run_and_end() {
    let cluster = Cluster::start();
    play(
        &cluster,
        &[
            ("runs", runs),
            ("grace", grace),
            ("same-name", same_name),
            ("init-containers", init_containers),
            ("restarts", restarts),
            ("downward", downward),
            ("succeeds", succeeds),
            ("sidecars", newer::sidecars),
            ("generations", newer::generations),
            ("streaming-lists", newer::streaming_lists),
        ],
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_that_cannot_run_here_fail_with_a_reason() {
    let cluster = Cluster::start();
    play(
        &cluster,
        &[
            ("out-of-cpu", out_of_cpu),
            ("node-affinity", node_affinity),
            ("unsupported", unsupported),
            ("no-image", no_image),
            ("mirror", mirror),
            ("admission-policy", newer::admission_policy),
        ],
    );
}

fn runs(scene: &Namespace<'_>) {
    let script = format!("echo hello; {FOREVER}");
    scene.pod(
        "web",
        json!({"terminationGracePeriodSeconds": 1, "containers": [scene.cluster.container("main", &script)]}),
    );
    let web = scene.ready("web");
    let status = &web["status"];
    assert_eq!(
        (&status["phase"], &status["hostIP"], &status["qosClass"]),
        (&json!("Running"), &json!(NODE_IP), &json!("BestEffort"))
    );
    assert!(status["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.88.")), "{status:#}");
    assert_eq!(status["podIPs"][0]["ip"], status["podIP"]);
    assert!(status["startTime"].is_string(), "{status:#}");
    for condition in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        assert!(is(&web, condition), "{condition}: {status:#}");
    }
    let main = container_status(&web, "main").expect("a status");
    let node = &scene.cluster.node;
    assert_eq!(main["containerID"], json!(format!("containerd://{}", node.running("web/main").id)));
    assert!(main["imageID"].as_str().is_some_and(|id| id.contains("sha256:")), "{main:#}");

    let table = scene.kubectl(&["get", "pods", "-o", "wide"]);
    let row = table.lines().nth(1).unwrap_or_default();
    for word in ["web", "1/1", "Running", NODE, "10.88."] {
        assert!(row.contains(word), "no {word} in {table}");
    }
    let described = scene.kubectl(&["describe", "pod", "web"]);
    for word in ["Pulled", "Created", "Started", &format!("{NODE}/{NODE_IP}")] {
        assert!(described.contains(word), "describe does not say {word}:\n{described}");
    }
    // The node's own command knows the pod, too.
    let log = node.imagelet.ok(&["logs", &format!("{}/web", scene.name)]);
    assert_eq!(log.trim(), "hello");
}

fn grace(scene: &Namespace<'_>) {
    // Half of the patience: a container that is asked to end, says so, and ends when a file says that it may.
    let out = scene.cluster.node.out();
    let script = "trap 'echo asked > /out/asked; until test -e /out/may-end; do sleep 0.1; done; exit 0' TERM; \
                  while :; do sleep 0.1; done";
    let mut main = scene.cluster.container("main", script);
    main["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    scene.pod(
        "slow",
        json!({"terminationGracePeriodSeconds": 100, "containers": [main], "volumes": [{"name": "out", "hostPath": {"path": out}}]}),
    );
    scene.ready("slow");
    scene.kubectl(&["delete", "pod", "slow", "--wait=false"]);
    scene.cluster.plane.until("the container is asked to end", || out.join("asked").exists());
    // While the pod ends, its object still exists.
    let ending = scene.get(&["pod", "slow"]);
    assert!(ending["metadata"]["deletionTimestamp"].is_string(), "{:#}", ending["metadata"]);
    assert!(scene.kubectl(&["get", "pods"]).contains("Terminating"));
    std::fs::write(out.join("may-end"), "").expect("write a file");
    scene.wait(&["--for=delete", "pod/slow"]);
    assert!(!scene.events("slow", "Killing").is_empty());
}

fn same_name(scene: &Namespace<'_>) {
    let first = scene.running("again");
    let before = scene.cluster.node.running("again/main");
    scene.kubectl(&["delete", "pod", "again", "--wait=false"]);
    scene.cluster.plane.until("the name is free", || {
        scene
            .try_kubectl(&["run", "again", "--image", &scene.cluster.node.image, "--image-pull-policy=IfNotPresent"])
            .code
            == Some(0)
    });
    let second = scene.ready("again");
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    scene.cluster.plane.until("the container of the first one is gone", || {
        scene.cluster.node.ran().iter().all(|ran| ran.id != before.id)
    });
    assert_eq!(container_status(&second, "again").expect("a status")["restartCount"], 0);
    // A forced deletion with grace 0 removes the object before the containers, and these end, too.
    scene.kubectl(&["delete", "pod", "again", "--force", "--grace-period=0"]);
    scene
        .cluster
        .plane
        .until("its container is gone", || scene.cluster.node.ran().iter().all(|ran| ran.of != "again/again"));
}

fn init_containers(scene: &Namespace<'_>) {
    let share = |mut container: Value| {
        container["volumeMounts"] = json!([{"name": "work", "mountPath": "/shared"}]);
        container
    };
    let container = |name: &str, script: &str| share(scene.cluster.container(name, script));
    let mut init =
        vec![container("first", "echo first >> /shared/order"), container("second", "echo second >> /shared/order")];
    // A server before 1.28 drops the restart policy of a container, and would make of a sidecar an init container without end.
    let has_sidecars = scene.cluster.plane.version() >= (1, 28);
    if has_sidecars {
        let mut side = container("side", &format!("echo side >> /shared/order; {FOREVER}"));
        side["restartPolicy"] = json!("Always");
        init.insert(1, side);
    }
    let main = container("main", &format!("echo main >> /shared/order; cat /shared/order; {FOREVER}"));
    let spec = json!({"terminationGracePeriodSeconds": 1, "initContainers": init, "containers": [main],
                      "volumes": [{"name": "work", "emptyDir": {}}]});
    scene.pod("ordered", spec);
    let ordered = scene.ready("ordered");
    let log = scene.cluster.node.imagelet.ok(&["logs", &format!("{}/ordered", scene.name), "-c", "main"]);
    let mut lines: Vec<&str> = log.lines().collect();
    lines.retain(|line| *line != "side");
    assert_eq!(lines, ["first", "second", "main"]);
    for name in ["first", "second"] {
        let ended = &container_status(&ordered, name).expect("a status")["state"]["terminated"];
        assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("Completed"), &json!(0)), "{name}");
    }
    let ready = scene.kubectl(&["get", "pod", "ordered", "--no-headers"]);
    assert!(ready.contains(if has_sidecars { "2/2" } else { "1/1" }), "{ready}");
}

fn restarts(scene: &Namespace<'_>) {
    scene.pod("crash", json!({"containers": [scene.cluster.container("main", "echo once more; exit 3")]}));
    let crash = scene.until(&["pod", "crash"], "it waits before it is started again", |pod| {
        let status = container_status(pod, "main");
        status.is_some_and(|status| status["state"]["waiting"]["reason"] == "CrashLoopBackOff")
    });
    let status = container_status(&crash, "main").expect("a status");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 3, "{status:#}");
    assert!(!is(&crash, "Ready"));
    assert!(scene.kubectl(&["get", "pods"]).contains("CrashLoopBackOff"));
    assert!(!scene.events("crash", "BackOff").is_empty());
}

fn downward(scene: &Namespace<'_>) {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut main = scene.cluster.container("main", "echo $NODE $IP $POD $ACCOUNT; cat /info/labels");
    main["env"] = json!([
        field("NODE", "spec.nodeName"),
        field("IP", "status.hostIP"),
        field("POD", "metadata.name"),
        field("ACCOUNT", "spec.serviceAccountName"),
    ]);
    main["volumeMounts"] = json!([{"name": "info", "mountPath": "/info"}]);
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let volume = json!({"name": "info", "downwardAPI": {"items": labels}});
    scene.pod("told", json!({"restartPolicy": "Never", "containers": [main], "volumes": [volume]}));
    scene.phase("told", "Succeeded");
    let log = scene.cluster.node.imagelet.ok(&["logs", &format!("{}/told", scene.name)]);
    assert_eq!(log.trim(), format!("{NODE} {NODE_IP} told default\napp=\"told\""));
}

fn succeeds(scene: &Namespace<'_>) {
    let never =
        |script: &str| json!({"restartPolicy": "Never", "containers": [scene.cluster.container("main", script)]});
    scene.pod("good", never("true"));
    scene.pod("bad", never("exit 7"));
    let good = scene.phase("good", "Succeeded");
    let bad = scene.phase("bad", "Failed");
    assert_eq!(container_status(&bad, "main").expect("a status")["state"]["terminated"]["exitCode"], 7);
    let reason = |pod: &Value| {
        let ready = pod["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
        ready.map(|ready| ready["reason"].clone())
    };
    assert_eq!((reason(&good), reason(&bad)), (Some(json!("PodCompleted")), Some(json!("PodFailed"))).clone());
    let table = scene.kubectl(&["get", "pods"]);
    assert!(table.contains("Completed") && table.contains("Error"), "{table}");
}

/// A pod that bypasses the scheduler and names its node.
fn bound(name: &str, mut spec: Value) -> Value {
    spec["nodeName"] = json!(NODE);
    pod(name, spec)
}

fn out_of_cpu(scene: &Namespace<'_>) {
    let mut main = scene.cluster.container("main", FOREVER);
    main["resources"] = json!({"requests": {"cpu": "1000"}});
    scene.apply(bound("huge", json!({"containers": [main]})));
    let huge = scene.phase("huge", "Failed");
    assert_eq!(huge["status"]["reason"], "OutOfcpu", "{:#}", huge["status"]);
    assert!(huge["status"]["message"].as_str().is_some_and(|message| message.contains("cpu")), "{:#}", huge["status"]);
    assert!(scene.kubectl(&["get", "pods"]).contains("OutOfcpu"));
}

fn node_affinity(scene: &Namespace<'_>) {
    let spec =
        json!({"containers": [scene.cluster.container("main", FOREVER)], "nodeSelector": {"example.com/gpu": "yes"}});
    scene.apply(bound("picky", spec));
    let picky = scene.phase("picky", "Failed");
    assert_eq!(picky["status"]["reason"], "NodeAffinity", "{:#}", picky["status"]);
}

fn unsupported(scene: &Namespace<'_>) {
    let volume = json!({"name": "disk", "nfs": {"server": "192.0.2.1", "path": "/exports"}});
    let spec = json!({"containers": [scene.cluster.container("main", FOREVER)], "volumes": [volume]});
    scene.apply(bound("networked", spec));
    let failed = scene.phase("networked", "Failed");
    let status = failed["status"].to_string();
    assert!(status.contains("spec.volumes[0].nfs"), "the field is named: {status}");
    // It is deleted like any other.
    scene.kubectl(&["delete", "pod", "networked", "--timeout=60s"]);
}

fn no_image(scene: &Namespace<'_>) {
    let image = format!("{}/team/none:1", scene.cluster.node.scene.registry.host());
    scene.pod(
        "imageless",
        json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]}),
    );
    let waiting = scene.until(&["pod", "imageless"], "its image cannot be pulled", |pod| {
        container_status(pod, "main").is_some_and(|status| {
            ["ErrImagePull", "ImagePullBackOff"].iter().any(|reason| status["state"]["waiting"]["reason"] == *reason)
        })
    });
    assert_eq!(waiting["status"]["phase"], "Pending");
    let failed = scene.events("imageless", "Failed");
    assert!(failed.iter().any(|message| message.contains("team/none:1")), "{failed:?}");
}

fn mirror(scene: &Namespace<'_>) {
    let node = &scene.cluster.node;
    let mut local =
        node.pod("local", json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}));
    local["metadata"]["namespace"] = json!(scene.name);
    node.write("local.json", &local);
    let name = format!("local-{NODE}");
    let mirror = scene.until(&["pod", &name], "it runs", |pod| is(pod, "Ready"));
    assert!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string(), "{:#}", mirror["metadata"]);
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    // A local pod cannot be ended through the API server.
    let before = node.running("local/main").id;
    scene.kubectl(&["delete", "pod", &name, "--wait=false"]);
    let again = scene
        .until(&["pod", &name], "there is another mirror", |pod| pod["metadata"]["uid"] != mirror["metadata"]["uid"]);
    assert_eq!(again["metadata"]["name"], name.as_str());
    assert_eq!(node.running("local/main").id, before);
    node.remove("local.json");
    scene.wait(&["--for=delete", &format!("pod/{name}")]);
}
