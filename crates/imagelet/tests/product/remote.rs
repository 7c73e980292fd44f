//! The same commands with Debian's containerd behind them, and imagelet's socket in front of it.

use std::fs;

use crate::support::process::run;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn ensure_images_inspect_rmi_and_df_through_containerd() {
    let s = Scene::new();
    let (name, image) = s.push_file("remote/one:1", "a", "one");
    let containerd = Containerd::start(s.registry.host());
    let imagelet = Imagelet::remote(&containerd.endpoint());
    let file = s.scratch.join("pod.yaml");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: '{name}'}}]}}\n"
    );
    fs::write(&file, pod).expect("write a manifest");
    let file = file.display().to_string();
    imagelet.ok(&["ensure", "-f", &file]);
    assert_eq!(imagelet.ids(), [image.id.as_str()]);
    let there = run(containerd.ctr().args(["images", "list", "-q"]));
    assert!(there.contains(&name), "containerd has it:\n{there}");
    let asked = s.registry.requests().len();
    imagelet.ok(&["ensure", "-f", &file]);
    assert_eq!(s.registry.requests().len(), asked, "a second ensure asks nobody");

    assert!(imagelet.ok(&["inspect", &name]).contains(&image.id));
    imagelet.ok(&["df"]);
    let mount = imagelet.fails(1, &["mount", &name, &s.scratch.directory("mnt").display().to_string()]);
    assert!(mount.contains("mount"), "{mount}");
    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    assert!(!run(containerd.ctr().args(["images", "list", "-q"])).contains(&name));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn imagelet_stands_between_a_client_and_containerd() {
    let s = Scene::new();
    let (name, image) = s.push_file("between/one:1", "a", "one");
    let containerd = Containerd::start(s.registry.host());
    let socket = s.scratch.join("between.sock");
    let endpoint = containerd.endpoint();
    let between = Imagelet::remote(&endpoint).global("--runtime-endpoint", &endpoint);
    let _serving = between.serve(&socket);
    let client = Imagelet::remote(&format!("unix://{}", socket.display()));
    assert_eq!(client.ok(&["pull", &name]).trim(), image.id);
    assert_eq!(client.ids(), [image.id.as_str()]);
    assert!(run(containerd.ctr().args(["images", "list", "-q"])).contains(&name), "the image lies in containerd");
    let missing = client.fails(1, &["pull", &s.registry.name("between/missing:1")]);
    assert!(missing.contains("between/missing"), "{missing}");
    client.ok(&["rmi", &image.id]);
    assert_eq!(Imagelet::remote(&endpoint).ids(), Vec::<String>::new());
}
