//! The store of another process, over the socket of the store, does what a store of this process does: the conformance suite.

use axum::Router;
use axum::routing::{get, post};
use base::lock::Mutex;
use cri_api::engine::testing::{Bench, run_all};
use cri_api::{Kind, ProgressSink, PullImageRequest};
use image_service::{Engine, EngineOptions};
use registry::testing::{ImageBuilder, LayerBuilder, TestRegistry};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::admin::remote_store::RemoteStore;
use crate::admin::table::{Access, Sockets};
use crate::admin::{AdminAddress, routes};
use crate::api::client::{self, Method};

async fn open(root: &Path) -> Engine {
    let platform = "linux/amd64".parse().expect("a platform");
    let options = EngineOptions { root: root.to_owned(), platform, ..EngineOptions::default() };
    Engine::open(options).await.expect("it opens")
}

/// Answers on the socket of `root`.
fn answer_for(engine: &Engine, root: &Path) -> (StoreServer, RemoteStore) {
    let engine = Arc::new(engine.clone());
    let running = StoreServer::start(root, Arc::clone(&engine) as _, engine).expect("it starts");
    (running, RemoteStore::of(root))
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_process_conforms() {
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
async fn images_of_another_process_conform() {
    let directory = tempfile::tempdir().expect("a directory");
    // Longer than the address of a socket may be.
    let root = directory.path().join("a".repeat(60)).join("b".repeat(60));
    let engine = open(&root).await;
    let registry = TestRegistry::open().await;
    registry.push("one", "v1", &ImageBuilder::tiny("one"));
    let (running, remote) = answer_for(&engine, &root);
    let name = format!("{}/one:v1", registry.host());
    let reported = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&reported);
    let progress = ProgressSink::new(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let auth = Some(oci::RegistryAuth::basic("user", "s3cret"));
    let request = PullImageRequest { progress, auth, ..PullImageRequest::new(&name) };
    let id = remote.pull_image(request).await.expect("a pull");
    assert!(reported.load(std::sync::atomic::Ordering::Relaxed) > 0, "progress is reported");
    let listed = remote.list_images(None).await.expect("a list");
    assert_eq!(listed, engine.list_images(None).await.expect("a list"));
    let spec = cri_api::ImageSpec::new(&name);
    assert_eq!(remote.image_status(&spec, false).await.expect("a status").image.map(|image| image.id), Some(id));
    let missing = PullImageRequest::new(format!("{}/two:v1", registry.host()));
    assert_eq!(remote.pull_image(missing).await.expect_err("no such image").kind(), Kind::NotFound);
    assert!(!remote.image_fs_info().await.expect("file systems").image_filesystems.is_empty());
    remote.remove_image(&spec).await.expect("a removal");
    assert_eq!(remote.list_images(None).await.expect("a list"), []);
    assert_eq!(remote.owner().await.expect("an owner").pid, std::process::id());
    running.stop().await;
    drop(running);
    engine.shutdown().await;
}

/// A caller sees the end of the process as `Unavailable`, not as an error of the call.
#[tokio::test(flavor = "multi_thread")]
async fn end_of_the_process_is_unavailable() {
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
    let error = pull.await.expect("it ends").expect_err("the process ends");
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    drop(running);
    assert_eq!(remote.owner().await.expect_err("the process ended").kind(), Kind::Unavailable);
    assert!(!root.join("store.sock").exists());
    engine.shutdown().await;
}

/// Listens on the socket of `root` with other routes than those of a store.
fn answer_with_routes(root: &Path, routes: Router) -> (tokio_util::task::AbortOnDropHandle<()>, RemoteStore) {
    std::fs::create_dir_all(root).expect("a root");
    let listener = tokio::net::UnixListener::bind(root.join("store.sock")).expect("a socket");
    let serve = async move { axum::serve(listener, routes).await.expect("it serves") };
    (tokio_util::task::AbortOnDropHandle::new(TaskTracker::new().spawn(serve)), RemoteStore::of(root))
}

#[tokio::test]
async fn owner_of_another_version_is_named_as_such() {
    let version = [("imagelet-api-version", "1.0")];
    let missing = r#"{"code":"Unimplemented","message":"there is no such route"}"#;
    let newer = async move || (axum::http::StatusCode::NOT_FOUND, version, missing);
    for (name, routes) in [
        ("before the API", Router::new().route("/holder", get(async || "1\n")).route("/engine", post(async || "{}"))),
        ("without the route", Router::new().fallback(newer)),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let (_server, remote) = answer_with_routes(directory.path(), routes);
        let request = PullImageRequest::new("registry.test/one:1");
        for error in [
            remote.owner().await.expect_err("another version"),
            remote.list_images(None).await.expect_err("another version"),
            remote.pull_image(request).await.expect_err("another version"),
        ] {
            assert_eq!(error.kind(), Kind::Unimplemented, "{name}");
            assert!(error.message().starts_with("the process that owns the store "), "{name}: {error}");
            assert!(error.message().contains(" is of another version of imagelet"), "{name}: {error}");
        }
    }
}

/// An answer without a last event is none: the caller asks the next owner.
#[tokio::test]
async fn answer_that_breaks_off_is_unavailable() {
    let directory = tempfile::tempdir().expect("a directory");
    let routes = Router::new().route("/v1/images/pull", post(async || "event: progress\ndata: \"resolving\"\n\n"));
    let (_server, remote) = answer_with_routes(directory.path(), routes);
    let error = remote.pull_image(PullImageRequest::new("registry.test/one:1")).await.expect_err("no last event");
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
}

/// Routes with paths of the client are on the socket of the store alone, which only its user can connect to. Those of the agent are not
/// on it.
#[tokio::test(flavor = "multi_thread")]
async fn sockets_answer_their_own_routes_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("store");
    let engine = open(&root).await;
    let (running, _) = answer_for(&engine, &root);
    let (service, store) = (Arc::new(engine.clone()), Arc::new(engine.clone()));
    let admin = Admin::new(|_| {}, Arc::clone(&service) as _);
    let admin = Admin { images: Mutex::new(Some(service)), engine: Some(store), ..admin };
    let address = AdminAddress::at(root.join("admin.sock"));
    let agent = admin.start(&address, &CancellationToken::new()).await.expect("it starts");

    let socket = root.join("store.sock");
    let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let (mut store_only, mut for_everyone) = (Vec::new(), Vec::new());
    for (sockets, route) in routes::table() {
        let path = format!("/v1{}", route.path.replace(['{', '}'], ""));
        match (sockets, route.access) {
            (Sockets::Store, _) => store_only.push(route.path),
            (Sockets::Both, Access::Everyone) => for_everyone.push(route.path),
            _ => {}
        }
        for (socket, other) in [(&socket, Sockets::Admin), (&address.socket, Sockets::Store)] {
            // A method that no route has tells a route from a path that does not exist.
            let answer = client::ask(socket, Method::DELETE, &path).await.expect_err("no such method").to_string();
            let want = if sockets == other { "404 Not Found" } else { "405 Method Not Allowed" };
            assert!(answer.contains(want), "{path} on {}: {answer}", socket.display());
        }
    }
    assert_eq!(
        store_only,
        ["/owner", "/files/import", "/files/export", "/mounts", "/mounts", "/podman-store", "/leases"]
    );
    assert_eq!(for_everyone, ["/version", "/openapi.json", "/images", "/images/events"]);
    agent.stop().await;
    running.stop().await;
    engine.shutdown().await;
}
