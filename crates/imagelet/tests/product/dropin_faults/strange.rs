//! Runtimes that are not what our engine fills: they pull themselves, and one line says so; `--pull-engine embedded` is refused. A node
//! whose images lie elsewhere heals with its next pull.

use super::{Harbour, differences};
use crate::support::Imagelet;
use crate::support::process::eventually;
use crate::support::scene::Scene;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_runtime_that_is_not_containerd_pulls_itself() {
    let s = Scene::new();
    let (name, image) = s.push_file("strange/one:1", "a", "one");
    let socket = s.scratch.join("agent.sock");
    let _agent = s.imagelet.serve(&socket);
    let endpoint = format!("unix://{}", socket.display());
    let remote = |engine: &str| Imagelet::remote(&endpoint).global("--pull-engine", engine);
    // The agent pulls with the embedded engine.
    assert_eq!(remote("embedded").ok(&["pull", &name]).trim(), image.id);
    assert_eq!(remote("auto").ok(&["pull", &name]).trim(), image.id);
    assert_eq!(s.imagelet.ids(), [image.id]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_snapshotter_that_is_not_filled_is_left_to_containerd() {
    let mut h = Harbour::new(512);
    h.containerd.set_snapshotter("overlayfs", "native");
    let app = h.push("native/app:1", &h.layers("native", 2, 10_000));
    let endpoint = h.containerd.endpoint();
    assert_eq!(
        h.imagelet.fails(64, &["pull", &app.name]),
        format!("error: pullEngine is embedded, and {endpoint} cannot be filled: containerd's snapshotter is native")
    );
    let socket = h.s.scratch.join("front.sock");
    let auto = h.s.imagelet.clone().global("--image-endpoint", &endpoint);
    let mut agent = auto.serve(&socket);
    let front = Imagelet::remote(&format!("unix://{}", socket.display())).global("--pull-engine", "runtime");
    for _ in 0..3 {
        front.ok(&["pull", &app.name]);
    }
    let lines: Vec<String> = agent.lines().into_iter().filter(|line| line.contains("snapshotter is native")).collect();
    assert_eq!(lines.len(), 1, "{:?}", agent.lines());
    assert!(!h.staging_root().exists());

    // The node gets the usual snapshotter. containerd's content is in the other one.
    h.containerd.set_snapshotter("native", "overlayfs");
    front.ok(&["pull", &app.name]);
    agent.stop();
    assert_eq!(h.committed().len(), app.chains.len(), "it was pulled again");
    let pods = crate::support::pods::Pods::on(&h.containerd);
    let pod = pods.run("switched", &app.name);
    pods.remove(&pod);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn image_with_missing_layers_is_absent_and_pulled_again() {
    let h = Harbour::new(256);
    let app = h.push("vanished/app:1", &h.layers("vanished", 4, 10_000));
    h.imagelet.ok(&["pull", &app.name]);
    let good = h.tree(&app.name);
    let socket = h.s.scratch.join("front.sock");
    let mut agent = h.imagelet.serve(&socket);
    let front = Imagelet::remote(&format!("unix://{}", socket.display())).global("--pull-engine", "runtime");
    let is_there = || front.run(&["inspect", &app.name]).code == Some(0);
    assert!(is_there());
    for (chain, _) in app.chains.iter().rev().take(3) {
        let remove = || h.containerd.ctr().args(["snapshots", "remove", chain]).output();
        // Without the one above it, containerd collects it by itself.
        let is_gone = |output: std::process::Output| {
            output.status.success() || String::from_utf8_lossy(&output.stderr).contains("not found")
        };
        eventually("nothing is above it", || remove().is_ok_and(is_gone));
    }
    assert!(!is_there(), "containerd lists it, and no container of it could start");
    let before = h.s.registry.requests().len();
    front.ok(&["pull", &app.name]);
    let requests = h.s.registry.requests().split_off(before);
    let read = |blob: &str| requests.iter().any(|r| r.starts_with("GET ") && r.contains(blob));
    // Those below are collected, or not yet.
    assert!(app.chains.iter().skip(2).all(|(_, blob)| read(blob)), "{requests:?}");
    assert!(is_there());
    assert_eq!(differences(&good, &h.tree(&app.name)), Vec::<String>::new());
    agent.stop();
    h.empty("at the end");
}
