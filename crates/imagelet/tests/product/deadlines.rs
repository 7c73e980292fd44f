//! Registries that stop in the middle of a layer, made so by a proxy: the progress deadline ends the pull with its own message in every
//! way in which imagelet pulls, the failed pull leaves no image and no record, and the next pull succeeds.

use std::fs;

use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::cli::Done;
use crate::support::containerd::Containerd;
use crate::support::gate::Gate;
use crate::support::manifests::{Manifests, Pod};
use crate::support::node::Node;
use crate::support::pods::idle_image;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// Bytes of the layer: more than all buffers of the connection together.
const LONG: usize = 24 << 20;
/// Bytes of an answer after which the registry stops.
const STOPS_AFTER: u64 = 1 << 20;

/// A registry behind a gate, with one long image.
struct SlowRegistry {
    gate: Gate,
    pod: String,
    id: String,
    /// Bytes that are still to be sent.
    size: u64,
    s: Scene,
    _runtime: Runtime,
}

impl SlowRegistry {
    fn new() -> Self {
        let s = Scene::new();
        let image = s.layout.image(&[s.file_layer("data", vec![0_u8; LONG], Packing::Plain)]);
        s.registry.push(&s.layout, &image, "slow/image:1");
        let (gate, runtime) = gate(&s);
        let name = format!("{}/slow/image:1", gate.host());
        let pod = Pod { namespace: "shop", name: "web", image: &name, policy: "IfNotPresent", secrets: &[] };
        let pod = Manifests::new().pod(pod).write(&s.scratch.join("pod.yaml"));
        Self { gate, pod, id: image.id, size: image.blobs[0].size, s, _runtime: runtime }
    }

    fn ensure(&self, imagelet: &Imagelet) -> Done {
        imagelet.run(&["ensure", "-f", &self.pod])
    }

    /// Asserts that `ensure` with a short deadline fails for it and leaves no image and no record in `root`, and that it succeeds once
    /// the registry goes on.
    #[track_caller]
    fn is_given_up(&self, imagelet: &Imagelet, root: &str) {
        self.gate.hold_answers_after(STOPS_AFTER);
        let done = self.ensure(&imagelet.clone().global("--image-pull-progress-deadline", "1s"));
        assert_eq!(done.code, Some(69), "{}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("ErrImagePull"), "{}", done.stdout);
        let seen = format!(" of {} bytes had come", self.size);
        for word in ["the pull made no progress for 1", "(imagePullProgressDeadline: 1s); ", &seen] {
            assert!(done.stderr.contains(word), "{word:?} is not in\n{}", done.stderr);
        }
        assert_eq!(imagelet.ids(), Vec::<String>::new());
        for directory in ["image_manager/pulling", "image_manager/pulled"] {
            let path = self.s.scratch.join(root).join(directory);
            let left: Vec<_> = fs::read_dir(&path).expect("a root").map(|e| e.expect("an entry").path()).collect();
            assert!(left.is_empty(), "left over: {left:?}");
        }
        self.gate.open();
        let done = self.ensure(imagelet);
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
        assert_eq!(imagelet.ids(), [self.id.as_str()]);
    }
}

/// A gate before the registry of a scene.
fn gate(s: &Scene) -> (Gate, Runtime) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
    (gate, runtime)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_stalled_pull_into_the_own_store_is_given_up() {
    let slow = SlowRegistry::new();
    slow.is_given_up(&slow.s.imagelet, "store");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_stalled_pull_through_an_agent_is_given_up() {
    let slow = SlowRegistry::new();
    let _agent = slow.s.imagelet.serve(&slow.s.scratch.join("cri.sock"));
    slow.is_given_up(&slow.s.imagelet, "store");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_stalled_pull_into_containerds_store_is_given_up() {
    let slow = SlowRegistry::new();
    let containerd = Containerd::start(&slow.gate.host());
    let root = slow.s.scratch.directory("behind").display().to_string();
    let imagelet = Imagelet::remote(&containerd.endpoint()).global("--root", &root).global("--pull-engine", "embedded");
    slow.is_given_up(&imagelet, "behind");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_stalled_pull_of_a_pod_is_given_up_and_the_pod_runs_later() {
    let node = Node::with(&json!({"imagePullProgressDeadline": "1s"}));
    let s = &node.scene;
    let image = idle_image(s, &[s.file_layer("data", vec![0_u8; LONG], Packing::Plain)]);
    s.registry.push(&s.layout, &image, "slow/pod:1");
    let (gate, _runtime) = gate(s);
    gate.hold_answers_after(STOPS_AFTER);
    let container = json!({"name": "main", "image": format!("{}/slow/pod:1", gate.host())});
    node.write("slow.yaml", &node.pod("slow", json!({"containers": [container]})));
    let message = node.waits("slow", "main", "ImagePullBackOff");
    assert!(message.contains("the pull made no progress for 1"), "{message}");
    assert!(message.contains("(imagePullProgressDeadline: 1s)"), "{message}");
    gate.open();
    node.ready("slow");
}
