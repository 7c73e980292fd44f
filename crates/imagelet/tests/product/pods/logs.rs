//! Logs of containers are rotated when they are large, and removed with the pod.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

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
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
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
    // The container continues to write to the new file.
    let size = || files(&node, "chatty").into_iter().find(|(name, _)| name == "0.log").map_or(0, |(_, size)| size);
    let before = size();
    node.eventually("more lines come", || size() != before);
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_log_is_below_its_directory_and_has_lines_of_a_runtime() {
    let node = Node::new();
    let script = format!("echo written; {FOREVER}");
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", &script)]});
    node.write("chatty.json", &node.pod("chatty", spec));
    node.ready("chatty");
    let logs = |args: &[&str]| node.imagelet.run(&[&["logs", "chatty"], args].concat());
    node.eventually("the line is there", || logs(&[]).stdout == "written\n");
    let pod =
        fs::read_dir(node.scene.scratch.join("log/pods")).expect("logs").next().expect("one").expect("one").path();
    let log = pod.join("main/0.log");
    // A pod that mounts the node's directory of logs can do all of this.
    let mut file = fs::OpenOptions::new().append(true).open(&log).expect("open");
    file.write_all(b"root:$6$swordfish:20000:0:99999:7:::\n2026-01-01T00:00:00Z stdout F last\n").expect("written");
    assert_eq!(logs(&[]).stdout, "written\nlast\n");
    assert_eq!(logs(&["--tail", "2"]).stdout, "written\nlast\n");
    let secret = node.scene.scratch.directory("secret");
    fs::write(secret.join("0.log"), "2026-01-01T00:00:00Z stdout F swordfish\n").expect("written");
    let replaced = |path: &Path, to: &Path| {
        let kept = path.with_extension("kept");
        fs::rename(path, &kept).expect("moved");
        std::os::unix::fs::symlink(to, path).expect("linked");
        let done = logs(&[]);
        fs::remove_file(path).expect("removed");
        fs::rename(&kept, path).expect("moved back");
        assert!(done.code == Some(1) && !done.stdout.contains("swordfish"), "{path:?}: {done:?}");
    };
    replaced(&log, &secret.join("0.log"));
    replaced(&pod.join("main"), &secret);
    fs::create_dir(secret.join("main")).expect("made");
    fs::rename(secret.join("0.log"), secret.join("main/0.log")).expect("moved");
    replaced(&pod, &secret);
    assert_eq!(logs(&[]).stdout, "written\nlast\n");
    node.clear();
}
