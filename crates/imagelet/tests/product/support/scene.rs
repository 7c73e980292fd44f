//! The scene of most tests: a real registry, a layout to make images in, and imagelet on an empty store.

use serde_json::Value;

use super::disk::LoopFs;
use super::images::{self, Image, Layer};
use super::process::need_root;
use super::scratch::Scratch;
use super::{DockerRegistry, Imagelet, Layout, Packing};

/// The scene. Fields are dropped in this order: the daemons before their directory.
pub(crate) struct Scene {
    pub(crate) imagelet: Imagelet,
    pub(crate) registry: DockerRegistry,
    pub(crate) layout: Layout,
    pub(crate) scratch: Scratch,
}

impl Scene {
    /// A new one; its tests need root.
    #[track_caller]
    pub(crate) fn new() -> Self {
        need_root();
        let scratch = Scratch::new();
        let layout = Layout::at(&scratch.join("layout"));
        let registry = DockerRegistry::start(&scratch.join("registry"));
        let imagelet = Imagelet::on(&scratch.join("store"));
        Self { imagelet, registry, layout, scratch }
    }

    /// The same with layers of one shape, as `--layer-format` has it.
    #[track_caller]
    pub(crate) fn shaped(format: &str) -> Self {
        let scene = Self::new();
        Self { imagelet: scene.imagelet.clone().global("--layer-format", format), ..scene }
    }

    /// Returns a new one whose store is on a disk to which no other process writes, so that the test alone decides how full it is.
    #[track_caller]
    pub(crate) fn on_a_disk() -> Self {
        let scene = Self::new();
        let disk = LoopFs::ext4(256).mount(&scene.scratch, "disk");
        Self { imagelet: Imagelet::on(&disk.join("store")), ..scene }
    }

    /// A layer of one file.
    #[track_caller]
    pub(crate) fn file_layer(&self, path: &str, content: impl AsRef<[u8]>, packing: Packing) -> Layer {
        let tree = tempfile::tempdir_in(self.scratch.path()).expect("a directory");
        images::write(&tree.path().join(path), content);
        images::settle(tree.path());
        self.layout.layer(tree.path(), packing)
    }

    /// An image with one file, pushed. The answer is its whole name and itself.
    #[track_caller]
    pub(crate) fn push_file(&self, name: &str, path: &str, content: impl AsRef<[u8]>) -> (String, Image) {
        let image = self.layout.image(&[self.file_layer(path, content, Packing::Gzip)]);
        (self.registry.push(&self.layout, &image, name), image)
    }

    /// Returns the only image of the store; there must be exactly one.
    #[track_caller]
    pub(crate) fn only_image(&self) -> Value {
        let mut all = self.imagelet.images();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The requests to the registry while `args` run.
    #[track_caller]
    pub(crate) fn reads_while(&self, args: &[&str]) -> Vec<String> {
        let before = self.registry.requests().len();
        self.imagelet.ok(args);
        self.registry.requests().split_off(before)
    }
}

/// How many of these requests read a blob.
pub(crate) fn blobs_in(requests: &[String]) -> usize {
    requests.iter().filter(|r| r.starts_with("GET ") && r.contains("/blobs/sha256:")).count()
}
