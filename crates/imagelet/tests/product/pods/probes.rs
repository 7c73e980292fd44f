//! Probes over the network of real pods: a container that is not live is restarted, one that is not ready is reported, one that has
//! not started is waited for. Exec, HTTP, TCP, and gRPC against containerd's own health service.

use serde_json::{Value, json};

use crate::support::node::{FOREVER, HEALTH_PORT, Node, container_status, is, restarts};

fn with(mut container: Value, more: Value) -> Value {
    container.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    container
}

fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "failureThreshold": 2})
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn failed_liveness_restarts_and_failed_readiness_is_reported() {
    let node = Node::with(&json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}}));
    let serve = "mkdir /tmp/w; touch /tmp/w/live /tmp/w/ready; exec httpd -f -p 8080 -h /tmp/w";
    let server = with(
        node.container("server", serve),
        json!({"livenessProbe": http("/live"), "readinessProbe": http("/ready"), "ports": [{"containerPort": 8080}]}),
    );
    let alive = "test -e /tmp/alive || { echo it is gone; exit 1; }";
    let alive = json!({"exec": {"command": ["sh", "-c", alive]}, "periodSeconds": 1, "failureThreshold": 1});
    let worker = with(
        node.container("worker", &format!("touch /tmp/alive; {FOREVER}")),
        json!({"livenessProbe": with(alive, json!({"initialDelaySeconds": 1}))}),
    );
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [server, worker]});
    node.write("web.json", &node.pod("web", spec));
    node.ready("web");
    let first = (node.running("web/server"), node.running("web/worker"));

    // Not ready, and ready again: nothing is restarted.
    node.in_container("web/server", "rm /tmp/w/ready");
    let pod = node.until("web", "it is not ready", |pod| (!is(pod, "Ready")).then(|| pod.clone()));
    let ready = |pod: &Value, container: &str| container_status(pod, container).expect("a status")["ready"].clone();
    assert_eq!((ready(&pod, "server"), ready(&pod, "worker")), (json!(false), json!(true)));
    let condition = pod["status"]["conditions"].as_array().expect("a list").iter().find(|c| c["type"] == "Ready");
    let condition = condition.expect("a condition");
    assert_eq!(condition["reason"], "ContainersNotReady", "{condition}");
    assert_eq!(condition["message"], "containers with unready status: [server]");
    node.in_container("web/server", "touch /tmp/w/ready");
    node.ready("web");
    assert_eq!((node.running("web/server"), node.running("web/worker")), first);

    // Not live: the one container is killed and started again, the other is left alone.
    node.in_container("web/server", "rm /tmp/w/live");
    let pod = node.until("web", "the server was started again", |pod| {
        (restarts(pod, "server") == 1 && is(pod, "Ready")).then(|| pod.clone())
    });
    assert_eq!(restarts(&pod, "worker"), 0);
    assert_eq!(node.running("web/worker"), first.1);
    let events = node.events("web");
    let said = |reason: &str, text: &str| events.iter().any(|(r, message)| r == reason && message.contains(text));
    assert!(said("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404"), "{events:#?}");
    assert!(said("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404"), "{events:#?}");
    assert!(said("Killing", "Container server failed liveness probe, will be restarted"), "{events:#?}");
    node.in_container("web/worker", "rm /tmp/alive");
    node.until("web", "the worker was started again", |pod| {
        (restarts(pod, "worker") == 1 && is(pod, "Ready")).then_some(())
    });
    assert_eq!(node.running("web/worker").attempt, 1);
    let shown = node.imagelet.ok(&["events"]);
    assert!(shown.contains("Liveness probe failed: it is gone\n"), "{shown}");
    let described = node.imagelet.ok(&["describe", "web"]);
    assert!(described.contains("Liveness probe failed: it is gone\n"), "{described}");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pod_that_has_not_come_up_is_waited_for_and_every_kind_of_probe_asks() {
    let node = Node::new();
    // It listens after two seconds; until then nothing but the startup probe asks.
    let tcp = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    let late = with(
        node.container("late", "sleep 2; exec httpd -f -p 8080 -h /tmp"),
        json!({"startupProbe": with(tcp.clone(), json!({"failureThreshold": 30})),
               "livenessProbe": with(tcp.clone(), json!({"failureThreshold": 1}))}),
    );
    node.write("late.json", &node.pod("late", json!({"terminationGracePeriodSeconds": 1, "containers": [late]})));
    // containerd answers on the node's network. It is well; of a service that it does not know it says nothing good.
    for (name, service) in [("healthy", ""), ("unknown", "nobody")] {
        let grpc = json!({"grpc": {"port": HEALTH_PORT, "service": service}, "periodSeconds": 1});
        let container = with(node.container("main", FOREVER), json!({"readinessProbe": grpc}));
        let spec = json!({"hostNetwork": true, "terminationGracePeriodSeconds": 1, "containers": [container]});
        node.write(&format!("{name}.json"), &node.pod(name, spec));
    }
    let starting = node.until("late", "it runs", |pod| {
        container_status(pod, "late")?["state"]["running"].is_object().then(|| pod.clone())
    });
    let status = container_status(&starting, "late").expect("a status");
    assert_eq!((&status["started"], &status["ready"]), (&json!(false), &json!(false)), "{status}");
    let up = node.ready("late");
    let status = container_status(&up, "late").expect("a status");
    assert_eq!((&status["started"], restarts(&up, "late")), (&json!(true), 0), "liveness asked too early: {status}");
    let healthy = node.ready("healthy");
    assert_eq!(healthy["status"]["podIP"], healthy["status"]["hostIP"], "it has the node's address");
    node.eventually("the service that is not known is told of", || {
        node.events("unknown").iter().any(|(reason, text)| reason == "Unhealthy" && text.starts_with("Readiness probe"))
    });
    assert!(!is(&node.pods()["unknown"], "Ready"));
    node.clear();
}
