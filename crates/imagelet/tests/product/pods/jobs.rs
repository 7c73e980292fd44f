//! Pods that end by themselves: how they are reported, that they are not started again, and `imagelet run -f` for one
//! shot with its exit codes.

use serde_json::{Value, json};

use crate::support::node::{FOREVER, Node, container_status, restarts};

fn job(node: &Node, name: &str, policy: &str, script: &str) -> Value {
    let mut container = node.container("main", script);
    container["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    node.pod(
        name,
        json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 1, "containers": [container],
        "volumes": [{"name": "out", "hostPath": {"path": node.out()}}]}),
    )
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pod_that_has_ended_says_how_and_is_not_started_again() {
    let mut node = Node::with(&json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    node.write("good.json", &job(&node, "good", "Never", "echo ran >> /out/good; exit 0"));
    node.write("bad.json", &job(&node, "bad", "Never", "echo ran >> /out/bad; exit 7"));
    node.write(
        "third.json",
        &job(&node, "third", "OnFailure", "echo ran >> /out/third; test $(wc -l < /out/third) -ge 3"),
    );
    let init = node.container("init", "exit 9");
    let mut never = job(&node, "never", "Never", "echo ran >> /out/never");
    never["spec"]["initContainers"] = json!([init]);
    node.write("never.json", &never);
    let pod = node.phase("good", "Succeeded");
    let ended = &container_status(&pod, "main").expect("a status")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    let pod = node.phase("bad", "Failed");
    let ended = &container_status(&pod, "main").expect("a status")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(7), &json!("Error")));
    let pod = node.phase("third", "Succeeded");
    assert_eq!((restarts(&pod, "main"), node.written("third").len()), (2, 3));
    node.phase("never", "Failed");
    assert_eq!(node.written("never"), Vec::<String>::new(), "its init container failed");
    let table = node.imagelet.ok(&["pods", "-A"]);
    let says = |pod: &str, word: &str| table.lines().any(|line| line.contains(pod) && line.contains(word));
    assert!(says("good-edge", "Completed") && says("bad-edge", "Error") && says("never-edge", "Init:Error"), "{table}");

    // Another process finds them as they are.
    node.stop();
    node.start();
    for (pod, phase) in [("good", "Succeeded"), ("bad", "Failed"), ("third", "Succeeded"), ("never", "Failed")] {
        node.phase(pod, phase);
    }
    assert_eq!((node.written("good").len(), node.written("bad").len(), node.written("third").len()), (1, 1, 3));
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn one_shot_runs_a_pod_to_its_end_and_answers_with_it() {
    let node = Node::idle(&json!({"staticPodPath": "", "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    let run = |manifest: &Value| node.imagelet.run_with_input(&["run", "-f", "-"], &manifest.to_string());
    let done = run(&job(&node, "good", "Never", "echo hello"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(node.left(), Vec::<String>::new(), "it clears up after itself");
    let done = run(&job(&node, "bad", "Never", "exit 7"));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("error: failed: shop/bad-edge"), "{}", done.stderr);
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}});
    let done = run(&wrong);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("spec.containers"), "{}", done.stderr);
    assert_eq!(node.left(), Vec::<String>::new());

    // A pod that does not end by itself is ended with the command.
    let file = node.scene.scratch.join("forever.json");
    let pod = node
        .pod("forever", json!({"terminationGracePeriodSeconds": 2, "containers": [node.container("main", FOREVER)]}));
    std::fs::write(&file, pod.to_string()).expect("write a manifest");
    let mut daemon = node.imagelet.daemon(&["run", "-f", &file.display().to_string()]);
    node.eventually("it runs", || node.ran().iter().any(|ran| ran.running));
    daemon.stop();
    node.eventually("nothing is left", || node.left().is_empty());
}
