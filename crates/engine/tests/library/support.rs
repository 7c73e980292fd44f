//! A store in a temporary directory, a registry on loopback, and a small image.

use imagelet_engine::{Engine, Reference};
use registry::testing::{BuiltImage, ImageBuilder, LayerBuilder, Options, TestRegistry};

pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) registry: TestRegistry,
    pub(crate) directory: tempfile::TempDir,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let engine = Engine::open(directory.path().join("store")).await.expect("opens");
        Self { engine, registry: TestRegistry::start(options).await, directory }
    }

    /// The reference of `REPOSITORY:TAG` in the registry.
    pub(crate) fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.registry.host()).parse().expect("a reference")
    }

    /// Makes an image available in the registry as `REPOSITORY:TAG`.
    pub(crate) fn push(&self, name: &str, image: &BuiltImage) -> Reference {
        let reference = self.reference(name);
        self.registry.push(reference.path(), reference.tag().expect("a tag"), image);
        reference
    }
}

/// An image of two layers, the second of which is too big for one read.
pub(crate) fn app() -> BuiltImage {
    let base = LayerBuilder::new()
        .dir("etc")
        .file_mode("etc/os-release", "ID=base\n", 0o644)
        .file("etc/old", "")
        .symlink("bin", "usr/bin")
        .symlink("etc/up", "../../../etc/os-release");
    let upper = LayerBuilder::new()
        .file_mode("etc/os-release", "ID=app\n", 0o640)
        .whiteout("etc/old")
        .dir("usr")
        .dir("usr/bin")
        .file_mode("usr/bin/app", noise(400_000), 0o755);
    ImageBuilder::new().layer(base).layer(upper).env("A", "b").entrypoint(&["/usr/bin/app"]).build()
}

/// Bytes that no compression makes smaller.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}
