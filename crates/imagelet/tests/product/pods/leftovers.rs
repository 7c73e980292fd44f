//! Proves that the check for leftovers of pods works: a pod that imagelet does not know is found by every part of the check, and
//! not found after its removal.

use cri_api::{
    ContainerConfig, ContainerMetadata, ImageSpec, PodSandboxConfig, PodSandboxMetadata, PortMapping,
    RuntimeService as _,
};
use serde_json::json;

use crate::support::Imagelet;
use crate::support::network::{NODE_IP, get};
use crate::support::node::Node;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn search_for_leftovers_finds_them() {
    let node = Node::idle(&json!({}));
    assert_eq!(node.left(), Vec::<String>::new());
    let log_directory = node.scene.scratch.directory("log/pods/shop_web_u").display().to_string();
    let mut config = PodSandboxConfig {
        metadata: PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "shop".into(), attempt: 0 },
        log_directory,
        port_mappings: vec![PortMapping { container_port: 80, host_port: 18080, ..PortMapping::default() }],
        ..PodSandboxConfig::default()
    };
    config.linux.cgroup_parent = format!("{}/pod1", node.containerd.scratch().cgroup());
    let container = ContainerConfig {
        metadata: ContainerMetadata { name: "main".into(), attempt: 0 },
        image: ImageSpec::new(&node.image),
        command: ["/bin/sh", "-c", "echo hello > /tmp/hello; exec httpd -f -p 80 -h /tmp"].map(str::to_owned).into(),
        ..ContainerConfig::default()
    };
    let sandbox = node.call(|service| service.run_pod_sandbox(&config, "")).expect("run a sandbox");
    let id = node.call(|service| service.create_container(&sandbox, &container, &config)).expect("create a container");
    node.call(|service| service.start_container(&id)).expect("start a container");
    for address in [NODE_IP, "127.0.0.1"] {
        node.eventually("the pod answers", || get(&format!("{address}:18080"), "/hello").is_some());
    }

    let left = node.left();
    for what in [
        "sandbox",
        "container",
        "containerd's container",
        "containerd's task",
        "mount",
        "network namespace",
        "state of a sandbox",
        "state of a container",
        "interface",
        "address",
        "note of the network",
        "rule",
        "cgroup",
        "directory entry",
    ] {
        assert!(left.iter().any(|line| line.starts_with(&format!("{what} "))), "no {what} in {left:#?}");
    }

    node.call(|service| service.stop_pod_sandbox(&sandbox)).expect("stop a sandbox");
    node.call(|service| service.remove_pod_sandbox(&sandbox)).expect("remove a sandbox");
    // The cleanup that the agent would do.
    std::fs::remove_dir_all(&config.log_directory).expect("remove the directory of the logs");
    for entry in std::fs::read_dir("/sys/fs/cgroup").expect("cgroups").filter_map(Result::ok) {
        let _ = std::fs::remove_dir(entry.path().join(config.linux.cgroup_parent.trim_start_matches('/')));
    }
    assert_eq!(node.left(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_root_that_ran_pods_becomes_a_store() {
    let mut node = Node::idle(&json!({}));
    let root = node.scene.scratch.join("root");
    let store = Imagelet::on(&root);
    node.start();
    assert!(root.join("pods.lock").exists() && !root.join("version").exists(), "it needs no store");
    // A store can be created in the root after imagelet was killed, and is usable while it runs and after it has ended.
    node.kill();
    store.ok(&["pull", &node.image]);
    node.start();
    assert_eq!(store.ids().len(), 1);
    node.stop();
    store.ok(&["check"]);
    store.ok(&["gc", "--all-unused", "--min-age", "0s"]);

    let other = node.scene.scratch.join("other");
    let endpoint = node.containerd.endpoint();
    let remote = Imagelet::remote(&endpoint).global("--root", &other.display().to_string());
    remote.ok(&["pin", "registry.example/**"]);
    remote.ok(&["pull", &node.image]);
    Imagelet::on(&other).ok(&["pull", &node.image]);
    remote.ok(&["gc", "--dry-run", "--all-unused"]);

    // A directory that is not ours is refused, and nothing is created in it.
    let foreign = node.scene.scratch.directory("foreign");
    std::fs::write(foreign.join("pods.lock"), "1").expect("written");
    std::fs::write(foreign.join("thesis.tex"), "mine").expect("written");
    let line = Imagelet::on(&foreign).fails(1, &["images"]);
    assert!(line.contains("neither empty nor a store: it has \"thesis.tex\" in it"), "{line}");
    assert_eq!(std::fs::read_dir(&foreign).expect("a directory").count(), 2);
}
