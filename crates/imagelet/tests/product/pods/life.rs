//! The life of a pod with everything in it: init containers, a sidecar, two containers, ports; what the commands say of it;
//! and its end, which leaves nothing.

use serde_json::{Value, json};

use crate::support::network::{NODE_IP, get};
use crate::support::node::{FOREVER, Node, container_status, is};

/// A pod whose containers write their names to one file, which one of them serves.
fn web(node: &Node) -> Value {
    let mount = |mut container: Value, more: Value| {
        container["volumeMounts"] = json!([{"name": "work", "mountPath": "/shared"}]);
        container.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        container
    };
    let first = node.container("first", "echo first >> /shared/order");
    // It is up a moment after it has started: the next one waits for that.
    let side =
        format!("echo side >> /shared/order; sleep 1; echo side-up >> /shared/order; touch /shared/up; {FOREVER}");
    let side = node.container("side", &side);
    let second = node.container("second", "test -e /shared/up && echo second >> /shared/order");
    let serve = "echo web >> /shared/order; echo serving; echo oh >&2; exec httpd -f -p 8080 -h /shared";
    let web = node.container("web", serve);
    let other = node.container("other", &format!("echo other >> /shared/order; {FOREVER}"));
    let up = json!({"exec": {"command": ["test", "-e", "/shared/up"]}, "periodSeconds": 1, "failureThreshold": 30});
    node.pod(
        "web",
        json!({
            "volumes": [{"name": "work", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1,
            "initContainers": [
                mount(first, json!({})),
                mount(side, json!({"restartPolicy": "Always", "startupProbe": up})),
                mount(second, json!({})),
            ],
            "containers": [
                mount(web, json!({"ports": [{"containerPort": 8080, "hostPort": 18080}]})),
                mount(other, json!({})),
            ],
        }),
    )
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pod_runs_serves_is_reported_and_leaves_nothing() {
    let node = Node::new();
    node.write("web.json", &web(&node));
    let pod = node.ready("web");

    // It is reached at its own address, at the node's, and on loopback.
    let ip = pod["status"]["podIP"].as_str().expect("a pod has an address");
    assert!(ip.starts_with("10.88."), "{ip}");
    let order = get(&format!("{ip}:8080"), "/order").expect("the pod answers");
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order, ["first", "side", "side-up", "second", "web", "other"]);
    for address in [NODE_IP, "127.0.0.1"] {
        assert!(
            get(&format!("{address}:18080"), "/order").is_some(),
            "the pod answers at the node's port of {address}"
        );
    }

    // Its status is that of a Kubernetes pod.
    let status = &pod["status"];
    assert_eq!((&status["phase"], &status["hostIP"]), (&json!("Running"), &json!(NODE_IP)));
    for condition in ["PodReadyToStartContainers", "Initialized", "ContainersReady"] {
        assert!(is(&pod, condition), "{condition}: {status:#}");
    }
    for (container, reason) in [("first", "Completed"), ("second", "Completed")] {
        let ended = &container_status(&pod, container).expect("a status")["state"]["terminated"];
        assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!(reason), &json!(0)), "{container}");
    }
    for container in ["side", "web", "other"] {
        let one = container_status(&pod, container).expect("a status");
        assert!(one["state"]["running"]["startedAt"].is_string() && one["ready"] == true, "{one:#}");
        assert_eq!((&one["restartCount"], &one["image"]), (&json!(0), &json!(node.image)));
        assert!(one["imageID"].as_str().is_some_and(|id| id.contains("sha256:")), "{one:#}");
        assert_eq!(one["containerID"], json!(format!("containerd://{}", node.running(&format!("web/{container}")).id)));
    }

    // The commands say the same, for people.
    let table = node.imagelet.ok(&["pods", "-n", "shop"]);
    let row = table.lines().find(|line| line.contains("web-edge")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains("Running") && row.contains("3/3"), "{table}");
    let described = node.imagelet.ok(&["describe", "shop/web"]);
    for word in ["web-edge", "first", "side", "Started", ip] {
        assert!(described.contains(word), "describe does not say {word}:\n{described}");
    }
    let events: Vec<String> = node.events("web").into_iter().map(|(reason, _)| reason).collect();
    let count = |reason: &str| events.iter().filter(|said| *said == reason).count();
    assert_eq!((count("Created"), count("Started")), (5, 5), "{events:?}");
    assert_eq!(count("Pulled"), 5, "the image was there for each: {events:?}");

    node.remove("web.json");
    node.nothing_is_left();
    assert_eq!(get(&format!("{NODE_IP}:18080"), "/order"), None, "the node's port is free again");
}
