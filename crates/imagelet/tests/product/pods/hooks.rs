//! Lifecycle hooks of containers and their grace periods: exec, HTTP and sleep; hooks
//! that fail and that never end; a container that does not want to end. The order is what the pods themselves have written.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::network::NODE_IP;
use crate::support::node::{FOREVER, Node, is, restarts};

/// A container that writes to `file` of the directory that it shares with the test.
fn writes(node: &Node, file: &str, on_term: &str, lifecycle: Value) -> Value {
    let script = format!(
        "say() {{ echo \"$1\" >> /out/{file}; }}; trap '{on_term}' TERM; say main; while :; do sleep 1000 & wait; done"
    );
    let mut container = node.container("main", &script);
    container["lifecycle"] = lifecycle;
    container["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    container
}

fn pod(node: &Node, name: &str, grace: u32, container: Value) -> Value {
    let out = json!([{"name": "out", "hostPath": {"path": node.out(), "type": "Directory"}}]);
    node.pod(name, json!({"volumes": out, "terminationGracePeriodSeconds": grace, "containers": [container]}))
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["/bin/sh", "-c", script]}})
}

/// Notes the path of every request in a file, and answers it.
fn note_requests(port: u16, file: &Path) {
    let listener = TcpListener::bind((NODE_IP, port)).expect("listen in the test's own network");
    let file = file.to_path_buf();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            let mut out = fs::OpenOptions::new().append(true).create(true).open(&file).expect("open a file");
            writeln!(out, "{path}").expect("write");
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
}

/// When a line was written, in seconds of the machine's uptime: `WORD SECONDS`.
fn at(lines: &[String], word: &str) -> f64 {
    let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{word} ")));
    line.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("no {word} in {lines:?}"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn hooks_come_in_their_order_and_within_the_grace_period() {
    let node = Node::new();
    // Before the hook after the start, the container itself may say something or not: the hook waits for it.
    let after = "until grep -q main /out/exec; do :; done; echo after >> /out/exec";
    let lifecycle = json!({"postStart": exec(after), "preStop": exec("echo before >> /out/exec")});
    node.write("exec.json", &pod(&node, "exec", 30, writes(&node, "exec", "say term; exit 0", lifecycle)));
    // Over HTTP, to a server on the node.
    note_requests(7799, &node.out().join("http"));
    let to = |path: &str| json!({"httpGet": {"host": NODE_IP, "port": 7799, "path": path}});
    let lifecycle = json!({"postStart": to("/after"), "preStop": to("/before")});
    node.write(
        "http.json",
        &pod(&node, "http", 30, writes(&node, "http-own", "echo term >> /out/http; exit 0", lifecycle)),
    );
    // A pause before the end, as pods behind a load balancer have it.
    let now = "echo \"$1 $(cut -d\" \" -f1 /proc/uptime)\" >> /out/sleep";
    let script =
        format!("say() {{ {now}; }}; trap \"say term; exit 0\" TERM; say main; while :; do sleep 1000 & wait; done");
    let mut sleeps = writes(&node, "sleep", "", json!({"preStop": {"sleep": {"seconds": 2}}}));
    sleeps["command"][2] = json!(script);
    node.write("sleep.json", &pod(&node, "sleep", 30, sleeps));
    // One that does not listen, and one whose hook never ends: both are killed when their time is over.
    node.write("deaf.json", &pod(&node, "deaf", 3, writes(&node, "deaf", "", json!({}))));
    let endless = json!({"preStop": exec("echo before >> /out/endless; sleep 1000")});
    node.write("endless.json", &pod(&node, "endless", 3, writes(&node, "endless", "say term; exit 0", endless)));
    for name in ["exec", "http", "sleep", "deaf", "endless"] {
        node.ready(name);
    }
    assert_eq!(node.written("exec"), ["main", "after"]);
    assert_eq!(node.written("http"), ["after"]);

    let uptime = || -> f64 {
        let text = fs::read_to_string("/proc/uptime").expect("read the uptime");
        text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
    };
    let (from, ended) = (Instant::now(), uptime());
    node.remove_all();
    // A pod that ends at once does not wait for those that do not.
    let mut left = node.pods();
    node.eventually("the pods that listen are gone", || {
        left = node.pods();
        !left.contains_key("exec") && !left.contains_key("http")
    });
    assert!(left.contains_key("endless"), "all of them end side by side: {:?}", left.keys());
    node.nothing_is_left();
    let slow = from.elapsed();
    assert_eq!(node.written("exec"), ["main", "after", "before", "term"]);
    assert_eq!(node.written("http"), ["after", "before", "term"]);
    let paused = at(&node.written("sleep"), "term") - ended;
    assert!(
        (2.0..6.0).contains(&paused),
        "it was told to end {paused} s after its file went, and the hook sleeps for 2 s"
    );
    assert_eq!(node.written("deaf"), ["main"]);
    // If a hook used up the grace period, the kubelet still gives the container two seconds to end.
    assert_eq!(node.written("endless"), ["main", "before", "term"]);
    // The promises are times of real processes: two grace periods of three seconds side by side, and two seconds more.
    assert!((Duration::from_secs(3)..Duration::from_secs(15)).contains(&slow), "the last one took {slow:?}");
    let killing = |pod: &str| node.events(pod).iter().filter(|(reason, _)| reason == "Killing").count();
    assert_eq!((killing("deaf"), killing("exec")), (1, 1));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn failing_or_hanging_post_start_hook_is_reported_and_ends_with_the_pod() {
    let node = Node::new();
    let failing = json!({"postStart": exec("echo tried >> /out/failing; exit 4")});
    node.write("failing.json", &pod(&node, "failing", 1, writes(&node, "failing-own", "exit 0", failing)));
    let hanging = json!({"postStart": exec("echo tried >> /out/hanging; sleep 1000")});
    node.write("hanging.json", &pod(&node, "hanging", 2, writes(&node, "hanging-own", "exit 0", hanging)));
    let good = node.pod("good", json!({"containers": [node.container("main", FOREVER)]}));
    node.write("good.json", &good);
    node.ready("good");
    // The container whose hook failed was killed, and is started again after its pause.
    let again = node.until("failing", "it was started again", |pod| (restarts(pod, "main") >= 1).then(|| pod.clone()));
    // It counts as started before its hook runs.
    node.eventually("the hook was tried again", || node.written("failing").len() >= 2);
    assert!(restarts(&again, "main") >= 1, "{again:#}");
    let events = node.events("failing");
    assert!(events.contains(&("FailedPostStartHook".to_owned(), "PostStartHook failed".to_owned())), "{events:?}");
    // One that hangs keeps its container from counting as up, and does not keep the pod from going.
    node.eventually("the hook hangs", || !node.written("hanging").is_empty());
    node.waits("hanging", "main", "ContainerCreating");
    assert!(node.running("hanging/main").attempt == 0 && !is(&node.pods()["hanging"], "Ready"));
    node.clear();
}
