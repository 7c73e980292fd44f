//! Registries that are really slow, made so by a proxy: each deadline of a pull ends it with its own message, leaves nothing
//! half, and the next pull is as good as any.

use std::fs;

use tokio::runtime::Runtime;

use crate::support::cli::Done;
use crate::support::gate::Gate;
use crate::support::manifests::{Manifests, Pod};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// Bytes of the layer: more than all buffers on its way together.
const LONG: usize = 24 << 20;

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
        let mut s = Scene::new();
        // Leftovers of such a pull for the next one are tested elsewhere; without them, the store is as before.
        s.imagelet = s.imagelet.clone().global("--resume-transfers", "off");
        let image = s.layout.image(&[s.file_layer("data", vec![0_u8; LONG], Packing::Plain)]);
        s.registry.push(&s.layout, &image, "slow/image:1");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
        let name = format!("{}/slow/image:1", gate.host());
        let pod = Pod { namespace: "shop", name: "web", image: &name, policy: "IfNotPresent", secrets: &[] };
        let pod = Manifests::new().pod(pod).write(&s.scratch.join("pod.yaml"));
        Self { gate, pod, id: image.id, size: image.blobs[0].size, s, _runtime: runtime }
    }

    fn ensure(&self, imagelet: &Imagelet) -> Done {
        imagelet.run(&["ensure", "-f", &self.pod])
    }

    /// Asserts that a pull is given up with these words, that the store is as before, and that the pull succeeds once the gate is open.
    #[track_caller]
    fn gives_up(&self, imagelet: &Imagelet, words: &[&str]) {
        let done = self.ensure(imagelet);
        assert_eq!(done.code, Some(69), "{}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("ErrImagePull"), "{}", done.stdout);
        for word in words {
            assert!(done.stderr.contains(word), "{:?} is not in\n{}", word, done.stderr);
        }
        assert_eq!(self.s.imagelet.ids(), Vec::<String>::new());
        for directory in ["ingest", "layers", "image_manager/pulling", "image_manager/pulled"] {
            let path = self.s.scratch.join("store").join(directory);
            let left: Vec<_> = fs::read_dir(&path).expect("the store").map(|e| e.expect("an entry").path()).collect();
            assert!(left.is_empty(), "left over: {left:?}");
        }
        self.gate.open();
        let done = self.ensure(&self.s.imagelet);
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
        assert_eq!(self.s.imagelet.ids(), [self.id.as_str()]);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_stands_still_is_given_up() {
    let slow = SlowRegistry::new();
    slow.gate.hold_answers_after(1 << 20);
    let imagelet = slow.s.imagelet.clone().global("--image-pull-progress-deadline", "1s");
    let seen = format!(" of {} bytes had come", slow.size);
    slow.gives_up(&imagelet, &["the pull made no progress for 1", "(imagePullProgressDeadline: 1s); ", &seen]);
}
