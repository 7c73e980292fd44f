//! Containers that keep ending: the length of their back-off, by their own clock, and the status meanwhile.

use serde_json::json;

use crate::support::node::{Node, container_status, full, restarts};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_container_that_keeps_ending_waits_ten_and_twenty_seconds() {
    let node = Node::new();
    let mut container = node
        .container("main", "cut -d' ' -f1 /proc/uptime >> /out/starts; echo gone wrong > /dev/termination-log; exit 3");
    container["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    let out = json!([{"name": "out", "hostPath": {"path": node.out()}}]);
    node.write("crash.json", &node.pod("crash", json!({"volumes": out, "containers": [container]})));
    let message = node.waits("crash", "main", "CrashLoopBackOff");
    let pod = &node.pods()["crash"];
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    let of = format!("restarting failed container=main pod={}_shop({uid})", full("crash"));
    assert_eq!(message, format!("back-off 10s {of}"));
    let status = container_status(pod, "main").expect("a status");
    let last = &status["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(3), &json!("Error")), "{status}");
    assert_eq!(last["message"].as_str().map(str::trim), Some("gone wrong"));
    assert_eq!(pod["status"]["phase"], "Running");

    let starts = || -> Vec<f64> {
        node.written("starts").iter().map(|line| line.parse().expect("a number of seconds")).collect()
    };
    node.eventually("it was started again after twenty seconds", || starts().len() == 4);
    let starts = starts();
    let waits: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // One that failed for the first time is started at once. A relist, a start and a busy machine add to each wait.
    for (wait, at_least) in waits.iter().zip([0.0, 10.0, 20.0]) {
        assert!((at_least..at_least + 6.0).contains(wait), "{waits:?}");
    }
    node.until("crash", "all restarts are told", |pod| (restarts(pod, "main") == 3).then_some(()));
    let events = node.events("crash");
    assert!(
        events.iter().any(|(reason, text)| reason == "BackOff"
            && text.starts_with(&format!("Back-off restarting failed container main in pod {}_shop(", full("crash")))),
        "{events:#?}"
    );
    node.clear();
}
