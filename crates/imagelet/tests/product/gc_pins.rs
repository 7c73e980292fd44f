//! Pins of imagelet as labels in containerd, which a kubelet next to imagelet respects: they are written for present images, end with the
//! pin, and leave the labels of other programs alone.

use std::fs;

use crate::support::containerd_config::version;
use crate::support::gc::row;
use crate::support::process::{eventually, run};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

/// The label by which containerd's CRI plugin reports an image as pinned.
const PINNED: &str = "io.cri-containerd.pinned=pinned";

/// A containerd, and imagelet with pins for it.
struct Node {
    imagelet: Imagelet,
    /// An imagelet that has no pins, and sees what a kubelet sees.
    kubelet: Imagelet,
    containerd: Containerd,
    s: Scene,
}

impl Node {
    fn new() -> Self {
        let s = Scene::new();
        let containerd = Containerd::start(s.registry.host());
        let at = |imagelet: Imagelet| {
            imagelet.hasty().global("-i", &containerd.endpoint()).global("--runtime-endpoint", &containerd.endpoint())
        };
        let kubelet = at(Imagelet::on(&s.scratch.join("kubelet")));
        Self { imagelet: at(s.imagelet.clone()), kubelet, containerd, s }
    }

    /// Pushes an image and pulls it with the runtime. Returns its name and its ID.
    fn pull(&self, name: &str) -> (String, String) {
        let (name, _) = self.s.push_file(name, "a", name);
        let id = self.imagelet.clone().global("--pull-engine", "runtime").ok(&["pull", &name]);
        (name, id.trim().to_owned())
    }

    /// Returns the labels of a record.
    fn labels(&self, record: &str) -> String {
        let listed = run(self.containerd.ctr().args(["images", "list", &format!("name=={record}")]));
        let line = listed.lines().find(|line| line.starts_with(record)).unwrap_or_else(|| panic!("{record}: {listed}"));
        line.split_whitespace().last().expect("labels").to_owned()
    }

    fn label(&self, record: &str, label: &str) {
        run(self.containerd.ctr().args(["images", "label", record, label]));
    }

    /// Waits until CRI reports this about the image. containerd 1.6.20 of Debian 12 does not know the label.
    fn until_reported(&self, id: &str, pinned: bool) {
        if version() >= (1, 7) {
            let is_pinned = || self.kubelet.images().iter().any(|image| image["id"] == *id && image["pinned"] == true);
            eventually("CRI reports the pin", || is_pinned() == pinned);
        }
    }

    /// Returns the reason of a plan about an image, by its name without the registry. That it was pulled ahead of its use does not matter.
    fn why(&self, name: &str) -> String {
        let plan = self.imagelet.plan(&["--all-unused"]);
        let why = row(&plan, name)["why"].as_str().expect("a reason");
        why.split(", although").next().unwrap_or_default().to_owned()
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kubelet_sees_a_pin_until_it_ends() {
    let n = Node::new();
    let (name, id) = n.pull("pins/app:1");
    let before = n.labels(&id);
    n.imagelet.ok(&["pin", &name]);
    let labels = n.labels(&id);
    assert!(labels.contains(PINNED), "{labels}");
    assert!(labels.contains("imagelet.io/pinned-by="), "{labels}");
    assert_eq!(n.labels(&name), before, "the record by name is as before");
    n.until_reported(&id, true);
    assert_eq!(n.why("pins/app:1"), "pinned");

    // Another pull by the runtime, and another imagelet, leave the pin.
    n.kubelet.clone().global("--pull-engine", "runtime").ok(&["pull", &name]);
    n.kubelet.ok(&["pin", &name]);
    n.kubelet.ok(&["unpin", &name]);
    assert_eq!(n.labels(&id), labels);

    n.imagelet.ok(&["unpin", &name]);
    // At once, though CRI lists the image as pinned for a moment.
    assert_eq!(n.why("pins/app:1"), "unused");
    assert_eq!(n.labels(&id), before);
    n.until_reported(&id, false);
    n.kubelet.ok(&["gc", "--all-unused"]);
    assert!(n.imagelet.images().is_empty());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn labels_of_an_administrator_stay() {
    let n = Node::new();
    let (by_name, first) = n.pull("pins/by-name:1");
    let (by_id, second) = n.pull("pins/by-id:1");
    n.label(&by_name, PINNED);
    n.label(&second, PINNED);
    let labels = || [&by_name, &second].map(|record| n.labels(record));
    let before = labels();
    n.until_reported(&first, true);
    n.imagelet.ok(&["pin", &by_name, &by_id]);
    n.imagelet.ok(&["unpin", &by_name, &by_id]);
    assert_eq!(labels(), before);
    n.until_reported(&second, true);
    for name in ["pins/by-name:1", "pins/by-id:1"] {
        let want = if version() >= (1, 7) { "pinned by the runtime" } else { "unused" };
        assert_eq!(n.why(name), want, "{name}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn agent_pins_images_of_sets_until_it_follows_none() {
    let n = Node::new();
    let (name, _) = n.s.push_file("pins/web:1", "a", "a");
    let (file, kubeconfig) = (n.s.scratch.join("web.yaml"), n.s.scratch.join("kubeconfig"));
    let set = format!(
        "apiVersion: imagelet.dev/v1alpha1\nkind: ImageSet\nmetadata: {{name: web}}\nspec:\n  images: [{{name: '{name}'}}]\n  \
         nodeSelector: {{}}\n"
    );
    fs::write(&file, set).expect("written");
    // No API server answers: the agent follows the set that was baked.
    let config = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n\
                  contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n";
    fs::write(&kubeconfig, config).expect("written");
    let baked = n.imagelet.json(&["fleet", "bake", "--set", &file.display().to_string()]);
    let id = baked["images"][0]["id"].as_str().expect("an ID").to_owned();
    let is_pinned = || n.labels(&id).contains(PINNED);
    // The root of the node may have another path.
    assert!(!is_pinned(), "a disk that is made has no labels of the machine that makes it");

    let socket = n.s.scratch.join("cri.sock");
    let following = n.imagelet.clone().global("--pull-engine", "runtime");
    let following =
        following.global("--fleet-kubeconfig", &kubeconfig.display().to_string()).global("--node-name", "edge");
    let mut agent = following.serve(&socket);
    eventually("the image of the set is pinned", is_pinned);
    n.until_reported(&id, true);
    assert_eq!(n.why("pins/web:1"), "pinned by an image set of the cluster");
    agent.stop();
    assert!(is_pinned(), "a kubelet respects the pin while the agent is away");

    let _agent = n.imagelet.serve(&socket);
    assert!(!is_pinned(), "an agent that follows no sets releases their pins before it serves");
    assert_eq!(n.why("pins/web:1"), "unused");
}
