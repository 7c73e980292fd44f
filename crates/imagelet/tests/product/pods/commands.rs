//! The commands that work in containers, on a real runtime: logs of runs and of containers, exec with its exit code, and a port of
//! the pod on this machine.

use std::fs;

use serde_json::json;

use crate::support::network::get;
use crate::support::node::{FOREVER, Node, full, is, restarts};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn logs_exec_and_port_forward_reach_the_containers_of_a_pod() {
    let node = Node::with(&json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    fs::write(node.out().join("runs"), "").expect("write a file");
    let again = format!(
        "echo run $(wc -l < /out/runs); echo x >> /out/runs; test $(wc -l < /out/runs) -ge 2 || exit 1; {FOREVER}"
    );
    let mut again = node.container("again", &again);
    again["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    let serve = "for n in 1 2 3; do echo line $n; done; echo page > /tmp/page; exec httpd -f -p 8080 -h /tmp";
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [again, node.container("web", serve)],
        "volumes": [{"name": "out", "hostPath": {"path": node.out()}}]});
    node.write("web.json", &node.pod("web", spec));
    node.until("web", "one container was started again", |pod| {
        (restarts(pod, "again") == 1 && is(pod, "Ready")).then_some(())
    });

    let log = |args: &[&str]| node.imagelet.ok(&[&["logs"], args].concat());
    let lines: Vec<String> = log(&["shop/web", "-c", "web"]).lines().map(str::to_owned).collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    assert_eq!(log(&["shop/web", "-c", "web", "--tail", "1"]).trim(), "line 3");
    assert_eq!(log(&["shop/web", "-c", "again"]).trim(), "run 1");
    assert_eq!(log(&["shop/web", "-c", "again", "-p"]).trim(), "run 0");
    let stamped = log(&["shop/web", "-c", "again", "--timestamps"]);
    assert!(stamped.starts_with("20") && stamped.trim_end().ends_with(" run 1"), "{stamped}");

    let said = node.imagelet.ok(&["exec", "shop/web", "-c", "again", "--", "hostname"]);
    assert_eq!(said.trim(), full("web"));
    let done =
        node.imagelet.run(&["exec", "shop/web", "-c", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((done.code, done.stdout.trim()), (Some(3), "out"), "{}", done.stderr);
    assert!(done.stderr.contains("err"), "{}", done.stderr);
    let done = node.imagelet.run_with_input(&["exec", "-i", "shop/web", "-c", "web", "--", "wc", "-c"], "twelve bytes");
    assert_eq!((done.code, done.stdout.trim()), (Some(0), "12"), "{}", done.stderr);

    let forward = node.imagelet.daemon(&["port-forward", "shop/web", "18080:8080"]);
    node.eventually("the port answers on loopback", || {
        get("127.0.0.1:18080", "/page").is_some_and(|page| page.trim() == "page")
    });
    drop(forward);
    node.clear();
}
