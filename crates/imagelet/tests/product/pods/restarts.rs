//! imagelet and containerd end and start again, on request or killed. Pods keep running: the same processes, the same ids, the same
//! counts of restarts; changes in the meantime are applied.

use serde_json::{Value, json};

use crate::support::node::{FOREVER, Node, Ran, container_status, restarts};

fn good(node: &Node, name: &str) -> Value {
    node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}))
}

/// A pod with an init container, a sidecar, and a container that has failed twice and runs now.
fn stateful(node: &Node) -> Value {
    let fails = format!("echo x >> /out/tries; test $(wc -l < /out/tries) -ge 3 || exit 1; {FOREVER}");
    let out = json!([{"name": "out", "mountPath": "/out"}]);
    let mut main = node.container("main", &fails);
    main["volumeMounts"] = out.clone();
    let mut init = node.container("init", "echo x >> /out/inits");
    init["volumeMounts"] = out;
    let mut side = node.container("side", FOREVER);
    side["restartPolicy"] = json!("Always");
    let live = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    main["livenessProbe"] = live.clone();
    main["readinessProbe"] = live;
    node.pod(
        "stateful",
        json!({"terminationGracePeriodSeconds": 1, "initContainers": [init, side], "containers": [main],
        "volumes": [{"name": "out", "hostPath": {"path": node.out()}}]}),
    )
}

fn runs(node: &Node) -> Vec<Ran> {
    node.ran().into_iter().filter(|ran| ran.running).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn another_imagelet_adopts_what_runs() {
    let mut node = Node::with(&json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    node.write("stateful.json", &stateful(&node));
    node.write("goes.json", &good(&node, "goes"));
    let pod = node.ready("stateful");
    node.ready("goes");
    assert_eq!(restarts(&pod, "main"), 2);
    let kept = |all: Vec<Ran>| -> Vec<Ran> { all.into_iter().filter(|ran| ran.of.starts_with("stateful/")).collect() };
    let before = kept(runs(&node));
    assert_eq!(before.len(), 2);
    for round in ["asked to end", "killed"] {
        if round == "killed" {
            node.kill();
        } else {
            node.stop();
        }
        assert_eq!(kept(runs(&node)), before, "{round}: containers go on without imagelet");
        // A change while imagelet does not run.
        if round == "killed" {
            node.write("comes.json", &good(&node, "comes"));
        } else {
            node.remove("goes.json");
        }
        node.start();
        let pod = node.ready("stateful");
        assert_eq!(restarts(&pod, "main"), 2, "{round}");
        let side = container_status(&pod, "side").expect("a status");
        assert_eq!((&side["restartCount"], &side["ready"]), (&json!(0), &json!(true)), "{round}: {side}");
        node.eventually("the pod whose manifest went has gone", || !node.pods().contains_key("goes"));
        assert_eq!(kept(runs(&node)), before, "{round}: adopted as they are");
        assert_eq!(node.written("inits").len(), 1, "{round}: the init container is not run again");
    }
    node.ready("comes");
    // It still knows how to restart containers that end. The kill also ends the shell that asked for it, so it is delayed and not
    // waited for.
    node.in_container("stateful/main", "(sleep 0.2; kill -TERM 1) >/dev/null 2>&1 &");
    node.until("stateful", "it was started again", |pod| (restarts(pod, "main") == 3).then_some(()));
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn runtime_restart_loses_no_pod() {
    let mut node = Node::new();
    node.write("stateful.json", &stateful(&node));
    node.write("goes.json", &good(&node, "goes"));
    node.ready("stateful");
    node.ready("goes");
    let before = runs(&node);
    for round in ["asked to end", "killed"] {
        if round == "killed" {
            node.containerd.kill();
        } else {
            node.containerd.stop();
        }
        // imagelet reports that the runtime is down, and keeps reporting the last known state of the pods.
        node.eventually("the agent says so", || {
            node.imagelet.run(&["status"]).stderr.contains("containerd") || {
                let last = node.log();
                last.iter().rev().take(20).any(|line| line.contains("list") || line.contains("runtime"))
            }
        });
        let pods = node.pods();
        assert_eq!(pods.keys().collect::<Vec<_>>(), ["goes", "stateful"], "{round}");
        assert_eq!(pods["stateful"]["status"]["phase"], "Running");
        node.containerd.start_again();
        let pod = node.ready("stateful");
        assert_eq!(restarts(&pod, "main"), 2, "{round}");
        assert_eq!(runs(&node), before, "{round}: nothing that ran was started again");
    }
    // A pod that is removed while the runtime is down ends when it is back.
    node.containerd.kill();
    node.remove("goes.json");
    node.write("comes.json", &good(&node, "comes"));
    node.containerd.start_again();
    node.ready("comes");
    node.eventually("it has gone", || !node.pods().contains_key("goes"));
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_runtime_that_is_not_there_yet_is_waited_for() {
    let mut node = Node::idle(&json!({}));
    node.write("web.json", &good(&node, "web"));
    node.containerd.stop();
    node.start_only();
    node.eventually("the agent says that nobody is there", || !node.log().is_empty());
    node.containerd.start_again();
    node.ready("web");
    node.clear();
}
