//! The store of another process, over the store's socket, does what a store of this process does: the conformance suite.

use std::path::Path;
use std::time::Duration;

use cri_api::Reason;
use cri_api::engine::testing::{Bench, run_all};
use image_service::{Engine, EngineOptions};
use registry::testing::{ImageBuilder, LayerBuilder, TestRegistry};

use super::*;
use crate::admin::remote_store::RemoteStore;

async fn open(root: &Path) -> Engine {
    let platform = "linux/amd64".parse().expect("a platform");
    let options = EngineOptions { root: root.to_owned(), platform, ..EngineOptions::default() };
    Engine::open(options).await.expect("it opens")
}

fn answer_for(engine: &Engine, root: &Path) -> (StoreServer, RemoteStore) {
    let engine = Arc::new(engine.clone());
    let running = StoreServer::start(root, Arc::clone(&engine) as _, engine).expect("it starts");
    (running, RemoteStore::of(root))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_another_process_conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("store");
    let engine = open(&root).await;
    let registry = TestRegistry::open().await;
    let layer = |name: &str, size: usize| LayerBuilder::new().file(name, vec![b'x'; size]);
    let base = layer("base", 100_000).build();
    for name in ["one", "two"] {
        let image = ImageBuilder::new().platform("linux/amd64".parse().expect("a platform"));
        registry.push(name, "v1", &image.layer(base.clone()).layer(layer(name, 30_000)).build());
    }
    let (running, remote) = answer_for(&engine, &root);
    let scratch = directory.path().join("scratch");
    std::fs::create_dir(&scratch).expect("makes");
    let names = ["one", "two"].map(|name| format!("{}/{name}:v1", registry.host()));
    run_all(&Bench { service: Arc::new(engine.clone()), engine: Arc::new(remote), names, scratch }).await;
    running.stop().await;
    engine.shutdown().await;
}

/// The calls of CRI work as well, and so do the ends of a call.
#[tokio::test(flavor = "multi_thread")]
async fn the_images_of_another_process_conform() {
    let directory = tempfile::tempdir().expect("a directory");
    // Longer than the address of a socket may be.
    let root = directory.path().join("a".repeat(60)).join("b".repeat(60));
    let engine = open(&root).await;
    let registry = TestRegistry::open().await;
    registry.push("one", "v1", &ImageBuilder::tiny("one"));
    let (running, remote) = answer_for(&engine, &root);
    let name = format!("{}/one:v1", registry.host());
    let told = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let progress = ProgressSink::new(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let auth = Some(oci::RegistryAuth::basic("somebody", "s3cret"));
    let request = PullImageRequest { progress, auth, ..PullImageRequest::new(&name) };
    let id = remote.pull_image(request).await.expect("a pull");
    assert!(told.load(std::sync::atomic::Ordering::Relaxed) > 0, "progress comes along");
    let listed = remote.list_images(None).await.expect("a list");
    assert_eq!(listed, engine.list_images(None).await.expect("a list"));
    let spec = cri_api::ImageSpec::new(&name);
    assert_eq!(remote.image_status(&spec, false).await.expect("a status").image.map(|image| image.id), Some(id));
    let missing = PullImageRequest::new(format!("{}/two:v1", registry.host()));
    assert_eq!(remote.pull_image(missing).await.expect_err("no such image").kind(), Kind::NotFound);
    assert!(!remote.image_fs_info().await.expect("file systems").image_filesystems.is_empty());
    remote.remove_image(&spec).await.expect("a removal");
    assert_eq!(remote.list_images(None).await.expect("a list"), []);
    assert_eq!(remote.holder().await, Some(std::process::id()));
    running.stop().await;
    drop(running);
    engine.shutdown().await;
}

/// A caller sees the end of the process as a lost connection, not as an error of the call.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_the_process_is_no_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("store");
    let engine = open(&root).await;
    let registry = TestRegistry::open().await;
    registry.push("slow", "v1", &ImageBuilder::tiny("slow"));
    registry.faults().always("/manifests/", registry::testing::Fault::Hang);
    let (running, remote) = answer_for(&engine, &root);
    let request = PullImageRequest::new(format!("{}/slow:v1", registry.host()));
    let asked = remote.clone();
    let pull = TaskTracker::new().spawn(async move { asked.pull_image(request).await });
    while registry.requests_for("/manifests/").is_empty() {
        tokio::task::yield_now().await;
    }
    running.stop().await;
    let error = pull.await.expect("it ends").expect_err("nobody answers");
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    drop(running);
    assert!(remote.holder().await.is_none() && !root.join("store.sock").exists());
    engine.shutdown().await;
}

#[test]
fn errors_keep_what_they_say() {
    for kind in Kind::ALL {
        let error = Error::new(kind, "x")
            .with_reason(Reason::DiskFull)
            .with_retry_after(Duration::from_millis(7))
            .with_needed_bytes(9);
        let text = serde_json::to_string(&WireError::from(&error)).expect("JSON");
        assert_eq!(Error::from(serde_json::from_str::<WireError>(&text).expect("an error")), error);
    }
}
