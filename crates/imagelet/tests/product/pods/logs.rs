//! Logs of containers are rotated when they are large, and gone with the pod.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::node::{FOREVER, Node, restarts};

/// The files of the log of a container, by name.
fn files(node: &Node, of: &str) -> Vec<(String, u64)> {
    let pods = node.scene.scratch.join("log/pods");
    let pod: PathBuf = fs::read_dir(&pods)
        .expect("the directory of logs")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.display().to_string().contains("_chatty-"))
        .expect("the pod has a directory of logs");
    let Ok(entries) = fs::read_dir(pod.join(of)) else { return Vec::new() };
    let mut all: Vec<(String, u64)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len())))
        .collect();
    all.sort();
    all
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_log_that_is_large_is_rotated_while_its_container_writes() {
    let node = Node::with(&json!({"containerLogMaxSize": "16Ki", "containerLogMaxFiles": 3,
        "containerLogMonitorInterval": "3s", "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    let chatty = "n=0; trap 'exit 0' TERM; while :; do n=$((n+1)); echo \"line $n of many, which are all of them quite long\"; \
                  usleep 2000; done";
    let first = format!(
        "echo run $(wc -l < /out/runs); echo x >> /out/runs; test $(wc -l < /out/runs) -ge 2 || exit 1; {FOREVER}"
    );
    let mut again = node.container("again", &first);
    again["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    fs::write(node.out().join("runs"), "").expect("write a file");
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("chatty", chatty), again],
        "volumes": [{"name": "out", "hostPath": {"path": node.out()}}]});
    node.write("chatty.json", &node.pod("chatty", spec));
    node.until("chatty", "one container was started again", |pod| {
        (restarts(pod, "again") == 1 && crate::support::node::is(pod, "Ready")).then_some(())
    });
    node.eventually("the log was rotated more often than files are kept", || {
        let all = files(&node, "chatty");
        all.iter().any(|(name, _)| name.ends_with(".gz")) && all.len() == 3
    });
    let all = files(&node, "chatty");
    assert_eq!(all.iter().filter(|(name, _)| name == "0.log").count(), 1, "{all:?}");
    // The container goes on writing to the new file.
    let size = || files(&node, "chatty").into_iter().find(|(name, _)| name == "0.log").map_or(0, |(_, size)| size);
    let before = size();
    node.eventually("more lines come", || size() != before);
    node.clear();
}
