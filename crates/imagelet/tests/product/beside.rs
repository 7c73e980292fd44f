//! Commands beside one that holds the root, agent or not: questions are answered as without it, pulls go through it or wait and say
//! for whom, and nobody notices its end, however it ends.

use std::io::Read as _;
use std::process::Child;
use std::time::Instant;

use registry::testing::{BuiltImage, Fault, ImageBuilder, LayerBuilder, TestRegistry};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::support::cli::end_of;
use crate::support::process::{PATIENCE, signal};
use crate::support::{Imagelet, Scratch};

/// A registry with one image that comes at once and one that does not come before it is let go; a store that has the first one.
struct Scene {
    _runtime: Runtime,
    registry: TestRegistry,
    imagelet: Imagelet,
    there: String,
    scratch: Scratch,
}

/// A pull that holds the root.
struct Holder {
    child: Child,
    said: String,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let registry = runtime.block_on(TestRegistry::open());
        let imagelet = Imagelet::on(&scratch.join("store"));
        let s = Self { _runtime: runtime, there: format!("{}/beside/there:1", registry.host()), registry, imagelet, scratch };
        let layer = LayerBuilder::new().dir("etc").file("etc/motd", "hello\n");
        let image = ImageBuilder::new().platform("linux/amd64".parse().expect("a platform")).layer(layer.build());
        s.push("there", &image.build());
        s.push("slow", &ImageBuilder::tiny("slow"));
        s.push("other", &ImageBuilder::tiny("other"));
        s.imagelet.ok(&["pull", &s.there]);
        s.registry.faults().always("/beside/slow/manifests/", Fault::Hang);
        s
    }

    fn push(&self, name: &str, image: &BuiltImage) {
        self.registry.push(&format!("beside/{name}"), "1", image);
    }

    fn name(&self, name: &str) -> String {
        format!("{}/beside/{name}:1", self.registry.host())
    }

    fn asked_for_slow(&self) -> usize {
        self.registry.requests_for("/beside/slow/manifests/").len()
    }

    /// Waits until the slow image was asked for so many times.
    fn until_asked(&self, times: usize) {
        let until = Instant::now() + PATIENCE;
        while self.asked_for_slow() < times {
            assert!(Instant::now() < until, "nobody asks the registry for the slow image");
            std::thread::yield_now();
        }
    }

    /// Starts a command that holds the root while it waits for the slow image.
    fn hold(&self, args: &[&str]) -> Child {
        let asked = self.asked_for_slow();
        let child = self.imagelet.spawn(args);
        self.until_asked(asked + 1);
        child
    }

    fn holders(&self) -> Vec<(&'static str, Child)> {
        let _ = self;
        Vec::new()
    }

    fn manifest(&self) -> String {
        let path = self.scratch.join("pod.yaml");
        let image = self.name("slow");
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
        );
        std::fs::write(&path, pod).expect("write a manifest");
        path.display().to_string()
    }
}

impl Holder {
    /// Waits for a line on standard error that has this text.
    fn wait_for(child: &mut Child, text: &str) -> Self {
        let _ = (child, text);
        unreachable!()
    }
}
