//! The sandbox of a pod on a node without internet: the agent ensures the runtime's sandbox image by its own mirrors and keeps it, and a
//! missing CNI configuration is reported with the directory and the remedy.

use std::fs;

use serde_json::json;

use crate::support::manifests::docker_config;
use crate::support::node::{FOREVER, Node};
use crate::support::pods::idle_image;
use crate::support::registry::GuardedRegistry;

/// An image whose registry does not exist; only imagelet has a mirror of it.
const SANDBOX: &str = "mirrored.example/infra/pause:1";

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn sandbox_image_is_pulled_from_the_mirror_of_imagelet_and_kept() {
    let mut node = Node::idle_with_sandbox_image(|_| SANDBOX.to_owned());
    let image = idle_image(&node.scene, &[node.scene.file_layer("pause", "pause", crate::support::Packing::Gzip)]);
    node.scene.registry.push(&node.scene.layout, &image, "infra/pause:1");
    let mirrors = node.scene.scratch.directory("mirrors");
    fs::create_dir(mirrors.join("mirrored.example")).expect("create a directory of hosts");
    let registry = node.scene.registry.host();
    let hosts = format!("[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    fs::write(mirrors.join("mirrored.example/hosts.toml"), hosts).expect("write a hosts file");
    node.configure(&json!({"registryConfigPaths": [mirrors, node.containerd.certs()]}));
    let doctor = node.imagelet.run(&["doctor"]).stdout;
    let line = doctor.lines().find(|line| line.starts_with("sandbox-image")).unwrap_or_else(|| panic!("{doctor}"));
    assert!(line.contains("warning") && line.contains(SANDBOX) && line.contains("is not present"), "{line}");

    node.start();
    node.write("web.json", &node.pod("web", json!({"containers": [node.container("main", FOREVER)]})));
    node.ready("web");
    // No container uses it, and no pin of a person keeps it.
    node.imagelet.ok(&["gc", "--all-unused", "--now"]);
    let ids: Vec<String> = node.imagelet.ids();
    assert!(ids.contains(&image.id.to_string()), "{ids:?}");
    let doctor = node.imagelet.run(&["doctor"]).stdout;
    assert!(doctor.lines().any(|line| line.starts_with("sandbox-image") && line.contains("ok")), "{doctor}");
    node.clear();
}

/// The runtime has neither the authority nor the credential of the registry.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn private_sandbox_image_is_pulled_with_the_credentials_of_the_node() {
    let (user, password) = ("ada", "an-unlikely-password");
    let mut started = None;
    let mut node = Node::idle_with_sandbox_image(|scene| {
        let guarded = GuardedRegistry::start(&scene.scratch.join("registry"), &[(user, password)]);
        started.insert(guarded).name("infra/private-pause:1")
    });
    let guarded = started.expect("it was started");
    let image = idle_image(&node.scene, &[node.scene.file_layer("pause", "pause", crate::support::Packing::Gzip)]);
    node.scene.registry.push(&node.scene.layout, &image, "infra/private-pause:1");
    let hosts = guarded.hosts_file(&node.scene.scratch.directory("hosts"));
    let file = node.scene.scratch.join("config.json");
    fs::write(&file, docker_config(&[(&guarded.host, user, password)]).to_string()).expect("write credentials");
    node.configure(&json!({
        "registryConfigPaths": [hosts, node.containerd.certs()],
        "credentials": {"dockerConfigPaths": [file]},
    }));
    node.start();
    node.write("web.json", &node.pod("web", json!({"containers": [node.container("main", FOREVER)]})));
    node.ready("web");
    let asked = guarded.asked();
    assert!(asked.iter().any(|access| access.path.contains("/manifests/")), "{asked:?}");
    let ids: Vec<String> = node.imagelet.ids();
    assert!(ids.contains(&image.id.to_string()), "{ids:?}");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn missing_pod_network_is_reported_with_directory_example_and_host_network() {
    let mut node = Node::idle(&json!({}));
    let directory = node.containerd.scratch().join("cni");
    let file = directory.join("10-pods.conflist");
    let network = fs::read(&file).expect("a network");
    fs::remove_file(&file).expect("remove the network");
    node.start();
    node.write("web.json", &node.pod("web", json!({"containers": [node.container("main", FOREVER)]})));
    let message = || {
        let events = node.events("web");
        events.into_iter().find(|(reason, _)| reason == "NetworkNotReady").map(|(_, message)| message)
    };
    node.eventually("the missing network is reported", || message().is_some());
    let message = message().expect("an event");
    let place = directory.display().to_string();
    for words in [&*place, "/usr/share/doc/imagelet/examples/10-pods.conflist", "hostNetwork: true"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let doctor = node.imagelet.run(&["doctor", "-o", "json"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.stdout);
    let doctor: serde_json::Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let cni = doctor["checks"].as_array().into_iter().flatten().find(|check| check["check"] == "cni").expect("a check");
    assert_eq!(cni["result"], "error", "{cni}");
    assert!(cni["message"].as_str().is_some_and(|text| text.contains(&place)), "{cni}");
    assert!(cni["remedy"].as_str().is_some_and(|text| text.contains("10-pods.conflist")), "{cni}");
    fs::write(&file, network).expect("write the network again");
    node.ready("web");
    node.clear();
}
