//! Tools that the topics share: a node (engine, registry, directories), layers and images, progress that can be waited for.
#![expect(clippy::disallowed_methods, reason = "tests may spawn tasks of their own")]

use base::lock::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri_api::{Error, Image, ImageService as _, ImageSpec, LayerState, ProgressSink, PullEvent, PullImageRequest};
use image_service::{Engine, EngineOptions, Resume};
use oci::Digest;
use registry::testing::{BuiltImage, ImageBuilder, LayerBuilder, TestRegistry};
use store::view::View;
use tokio::sync::Notify;

pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) registry: TestRegistry,
    pub(crate) directory: tempfile::TempDir,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut options = options(directory.path());
        change(&mut options);
        let engine = Engine::open(options).await.expect("opens");
        Self { engine, registry: TestRegistry::open().await, directory }
    }

    /// `repo:tag` or `repo@digest` at the node's registry.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.host())
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<String, Error> {
        self.engine.pull_image(PullImageRequest::new(self.name(name))).await
    }

    /// A pull as a task of its own.
    pub(crate) fn start_pull(&self, name: &str) -> (tokio::task::JoinHandle<Result<String, Error>>, Watch) {
        let watch = Watch::default();
        let request = PullImageRequest { progress: watch.sink(), ..PullImageRequest::new(self.name(name)) };
        let engine = self.engine.clone();
        (tokio::spawn(async move { engine.pull_image(request).await }), watch)
    }

    pub(crate) async fn status(&self, name: &str) -> Option<Image> {
        self.engine.image_status(&ImageSpec::new(self.name(name)), false).await.expect("a status").image
    }

    /// How the registry was asked for this blob, and in which repository, in order.
    pub(crate) fn asked_for(&self, blob: &Digest) -> Vec<String> {
        let path = format!("/blobs/{blob}");
        let requests = self.registry.requests_for(&path).into_iter();
        requests.map(|r| format!("{} {}", r.method, r.path["/v2/".len()..].trim_end_matches(&path))).collect()
    }

    pub(crate) fn hosts_toml(&self, text: &str) {
        let directory = self.directory.path().join("certs.d").join(self.registry.host());
        std::fs::create_dir_all(&directory).expect("creates");
        std::fs::write(directory.join("hosts.toml"), text).expect("writes");
    }

    /// Names of the entries of a directory of the store.
    pub(crate) fn entries(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path().join("store").join(directory)).expect("a directory");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The file tree of an image, or of a layer by its diff id, whatever its layers are on the disk.
    pub(crate) fn view(&self, text: &str) -> View {
        let store = self.engine.store();
        let lease = store.lease();
        let stack = store.stack(&lease, &text.into()).expect("readable").expect("is there");
        View::open(store.root(), &stack).expect("opens")
    }

    /// Content of a file in an image.
    pub(crate) fn file(&self, id: &str, path: &str) -> Option<Vec<u8>> {
        let view = self.view(id);
        let node = view.resolve(path.as_bytes(), false).ok()?;
        Some(content(&view, &node))
    }

    /// Changes one bit of a file of the image, in the layer of that number from below.
    pub(crate) fn damage(&self, id: &str, layer: usize, path: &str) {
        let store = self.engine.store();
        let record = store.resolve(&id.into()).expect("resolves").expect("there");
        let place = store.layer_directories(&record).expect("directories").swap_remove(layer);
        let file = if place.is_dir() { place.join(path) } else { place };
        let content = self.file(id, path).expect("a file");
        let mut bytes = std::fs::read(&file).expect("readable");
        let at = bytes.windows(256).position(|window| window == &content[..256]).expect("its content is in there");
        bytes[at + 100] ^= 1;
        std::fs::write(&file, bytes).expect("writes");
    }

    /// Waits until the background has ended, and checks that nothing is left of pulls that came to nothing.
    pub(crate) async fn check_clean(&self) {
        self.engine.settled().await;
        assert_eq!(self.engine.in_flight(), (0, 0));
        assert_eq!(self.entries("ingest"), Vec::<String>::new());
        let totals = self.engine.store().totals().expect("totals");
        assert_eq!(self.entries("layers").len() as u64, totals.layers);
    }
}

pub(crate) fn options(directory: &Path) -> EngineOptions {
    EngineOptions {
        root: directory.join("store"),
        hosts_roots: vec![directory.join("certs.d")],
        platform: "linux/amd64".parse().expect("a platform"),
        retry: registry::RetryPolicy {
            attempts: 3,
            base_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(4),
            ..registry::RetryPolicy::default()
        },
        store: store::OpenOptions { durability: store::Durability::Relaxed, ..store::OpenOptions::default() },
        // What is kept of pulls that were interrupted has tests of its own; for all others, nothing may be left of them.
        resume: Resume::Off,
        ..EngineOptions::default()
    }
}

/// All of a file.
pub(crate) fn content(view: &View, node: &store::view::Node) -> Vec<u8> {
    let file = view.file(node).expect("a file");
    let mut bytes = vec![0; usize::try_from(node.stat().size).expect("small")];
    let mut length = 0;
    while length < bytes.len() {
        let read = file.read_at(length as u64, &mut bytes[length..]).expect("reads");
        assert_ne!(read, 0, "as long as it says");
        length += read;
    }
    bytes
}

/// A progress sink whose events can be looked at and waited for.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<(Mutex<Vec<PullEvent>>, Notify)>);

impl Watch {
    pub(crate) fn sink(&self) -> ProgressSink {
        let inner = Arc::clone(&self.0);
        ProgressSink::new(move |event| {
            inner.0.lock().push(event);
            inner.1.notify_waiters();
        })
    }

    pub(crate) fn events(&self) -> Vec<PullEvent> {
        self.0.0.lock().clone()
    }

    pub(crate) async fn until(&self, what: impl Fn(&PullEvent) -> bool) {
        loop {
            let notified = self.0.1.notified();
            if self.events().iter().any(&what) {
                return;
            }
            notified.await;
        }
    }

    /// The next event, whatever it is.
    pub(crate) async fn next(&self) {
        let seen = self.events().len();
        loop {
            let notified = self.0.1.notified();
            if self.events().len() > seen {
                return;
            }
            notified.await;
        }
    }

    pub(crate) async fn until_layer(&self, digest: &Digest, state: LayerState) {
        self.until(|event| *event == PullEvent::Layer { digest: digest.clone(), state }).await;
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// A layer with one file of noise.
pub(crate) fn layer(path: &str, seed: u64, length: usize) -> LayerBuilder {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    LayerBuilder::new().dir(&format!("{directory}/")).file(path, noise(seed, length))
}

/// An image for the platform that the tests' engines have.
pub(crate) fn image() -> ImageBuilder {
    ImageBuilder::new().platform("linux/amd64".parse().expect("a platform"))
}

pub(crate) fn blob(image: &BuiltImage, layer: usize) -> Digest {
    image.layers[layer].descriptor.digest.clone()
}

pub(crate) fn write(root: &Path, path: &str, bytes: &[u8]) -> PathBuf {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
    std::fs::write(&path, bytes).expect("writes");
    path
}
