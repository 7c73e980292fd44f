//! Every documented route, asked over a real socket, with its answer held against the document: a store with a registry behind it.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use base::lock::Mutex;
use cri_api::engine::ImageEngine;
use cri_api::{Container, ContainerState, ImageService, Kind};
use image_manager::{ImageManager, LogRecorder, Options, PullBoard, WantedBy, WatchedPulls};
use image_service::{Engine, EngineOptions};
use registry::testing::{ImageBuilder, LayerBuilder, TestRegistry};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::image_sets::{ImageSetImage, ImageSetList, ImageSetState};
use super::images::ImageList;
use super::schema_check::Document;
use super::store_server::StoreServer;
use super::{Admin, AdminAddress, pod_routes};
use crate::api::client::{self, Method};
use crate::collection::{Collection, CollectionParts};

/// A set with an image of which everything is known.
fn sets() -> ImageSetList {
    let now = Some(jiff::Timestamp::UNIX_EPOCH);
    let text = |text: &str| Some(text.to_owned());
    let image = ImageSetImage {
        name: "r.example/app:1".to_owned(),
        digest: text("sha256:0"),
        reason: text("ImageNotFound"),
        message: text("not found"),
        retry_at: now,
        ..ImageSetImage::default()
    };
    let set = ImageSetState { name: "web".to_owned(), images: vec![image], ..ImageSetState::default() };
    ImageSetList { sets: vec![set], last_report: now }
}

/// An agent with a store.
struct Rig {
    socket: std::path::PathBuf,
    engine: Engine,
    registry: TestRegistry,
    document: Document,
    running: super::AdminServer,
    store: StoreServer,
    directory: tempfile::TempDir,
}

impl Rig {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let platform = "linux/amd64".parse().expect("a platform");
        let root = directory.path().join("store");
        let options = EngineOptions { root: root.clone(), platform, ..EngineOptions::default() };
        let engine = Engine::open(options).await.expect("it opens");
        let registry = TestRegistry::open().await;
        let layer = |name: &str, size: usize| LayerBuilder::new().file(name, vec![b'x'; size]).build();
        for name in ["one", "two"] {
            let image = ImageBuilder::new().platform("linux/amd64".parse().expect("a platform"));
            registry.push(name, "v1", &image.layer(layer("base", 100_000)).layer(layer(name, 30_000)).build());
        }
        let board = PullBoard::new(Arc::new(Instant::now), Arc::new(jiff::Timestamp::now));
        let service = Arc::new(engine.clone()) as Arc<dyn ImageService>;
        let options = Options { board: board.clone(), ..Options::default() };
        let manager = Arc::new(ImageManager::new(Arc::clone(&service), Arc::new(LogRecorder), options));
        let fake = cri_api::testing::FakeImageService::new();
        let mut parts = CollectionParts::for_tests(&root, &fake, "", Ok(None));
        parts.service = Arc::clone(&service);
        let runtime = cri_api::testing::FakeRuntimeService::new();
        let ended = ContainerState::Exited;
        runtime.put_container(Container { id: "c1".into(), state: ended, ..Container::default() });
        parts.runtime = Ok(Some(Arc::new(runtime)));
        let collection = Arc::new(Collection::open(parts).await.expect("it opens"));
        let watched = WatchedPulls::new(Arc::clone(&service), board.clone(), WantedBy::Command);
        let admin = Admin {
            collection: Some(collection),
            manager: Some(manager),
            pulls: Some(board),
            images: Mutex::new(Some(Arc::new(watched))),
            image_sets: Some(Arc::new(|| Some(sets()))),
            configuration: Some(Arc::new(|| json!({"kind": "ImageletConfiguration", "root": "/r"}))),
            engine: Some(Arc::new(engine.clone()) as Arc<dyn ImageEngine>),
            ..Admin::new(|_| {}, service)
        };
        let socket = root.join("admin.sock");
        let address = AdminAddress::at(socket.clone());
        let running = admin.start(&address, &CancellationToken::new()).await.expect("it starts");
        let store = Arc::new(engine.clone());
        let store = StoreServer::start(&root, Arc::clone(&store) as _, store).expect("it starts");
        Self { socket, engine, registry, document: Document::new(), running, store, directory }
    }

    fn name(&self, image: &str) -> String {
        format!("{}/{image}:v1", self.registry.host())
    }

    /// Asks, and holds the answer against the document. The path of the document is the one before the query.
    async fn ask(&mut self, verb: &str, target: &str, body: impl Into<Body>) -> Value {
        self.ask_on(&self.socket.clone(), verb, target, body).await
    }

    async fn ask_on(&mut self, socket: &Path, verb: &str, target: &str, body: impl Into<Body>) -> Value {
        let method: Method = verb.to_uppercase().parse().expect("a method");
        let asked = client::send::<Value>(socket, method, target, body).await;
        let answer = asked.unwrap_or_else(|error| panic!("{verb} {target}: {error}"));
        self.document.check(verb, target.split('?').next().unwrap_or_default(), &answer);
        answer
    }

    /// Reads the events of a request to their end, and holds them against the document.
    async fn follow(&mut self, socket: &Path, target: &str, body: Value) -> Vec<(String, Value)> {
        let mut stream = client::events(socket, Method::POST, target, body.to_string()).await.expect("a stream");
        let mut events = Vec::new();
        while let Some((name, data)) = stream.next().await.expect("an event") {
            let data: Value = serde_json::from_str(&data).expect("JSON");
            self.document.check_event("post", target, &name, &data);
            events.push((name, data));
        }
        events
    }

    /// Asks every route of the store for an image that is present, and for one that is removed.
    async fn ask_for_the_store(&mut self, image: &str, removed: &str) {
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("image", image).finish();
        for target in ["status", "inspect", "documents", "usage"] {
            let answer = self.ask("get", &format!("/v1/images/{target}?{query}"), Body::empty()).await;
            assert!(answer.is_object(), "{target}: {answer}");
        }
        let absent = self.ask("get", "/v1/images/usage?image=registry.test/absent:1", Body::empty()).await;
        assert_eq!(absent, Value::Null);
        for target in ["/v1/images/layers", "/v1/images/filesystems", "/v1/unfinished-pulls"] {
            self.ask("get", target, Body::empty()).await;
        }
        for (target, body) in [
            ("/v1/images/tag", json!({"image": image, "names": ["registry.test/more:1"]})),
            ("/v1/images/untag", json!({"image": image, "names": ["registry.test/more:1"]})),
            ("/v1/images/pin", json!({"image": image, "pinned": true})),
            ("/v1/images/pin", json!({"image": image, "pinned": false})),
            ("/v1/images/remove-batch", json!({"images": [removed, ""]})),
            ("/v1/unfinished-pulls/remove?all=true", Value::Null),
        ] {
            self.ask("post", target, body.to_string()).await;
        }
        let events = self.follow(&self.socket.clone(), "/v1/check", Value::Null).await;
        assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("checked"), "{events:?}");
    }

    /// Asks every route that only the socket of the store has.
    async fn ask_on_the_store_socket(&mut self, image: &str) {
        let socket = self.directory.path().join("store/store.sock");
        let archive = self.directory.path().join("archive.tar");
        let owner = self.ask_on(&socket, "get", "/v1/owner", Body::empty()).await;
        assert_eq!(owner["pid"], json!(std::process::id()));
        let mounts = self.ask_on(&socket, "get", "/v1/mounts", Body::empty()).await;
        assert_eq!(mounts, json!({"mounts": []}));
        let options = json!({"format": "ociArchive", "compress": "asPulled", "platforms": "own"});
        let body = json!({"path": archive, "images": [image], "options": options}).to_string();
        self.ask_on(&socket, "post", "/v1/files/export", body).await;
        let body = json!({"path": archive, "platforms": "own"});
        let imported = self.ask_on(&socket, "post", "/v1/files/import", body.to_string()).await;
        let events = self.follow(&socket, "/v1/files/import", body).await;
        assert_eq!(events.last(), Some(&("imported".to_owned(), imported)));
        let missing =
            self.follow(&socket, "/v1/files/import", json!({"path": "/nonexistent", "platforms": "own"})).await;
        assert_eq!((missing.len(), missing[0].0.as_str(), &missing[0].1["code"]), (1, "error", &json!("NotFound")));

        let body = json!({"image": image}).to_string();
        let mut lease = client::events(&socket, Method::POST, "/v1/leases", body).await.expect("a stream");
        let (name, data) = lease.next().await.expect("an event").expect("a lease");
        let data = serde_json::from_str(&data).expect("JSON");
        self.document.check_event("post", "/v1/leases", &name, &data);

        // What these do depends on the user of the test.
        for (target, body) in [
            ("/v1/mounts", json!({"image": {"image": "absent"}, "target": self.directory.path()})),
            ("/v1/podman-store", json!({"remove": true})),
        ] {
            let answer = client::send::<Value>(&socket, Method::POST, target, body.to_string()).await;
            let kind = answer.err().map(|error| error.kind());
            assert!(!matches!(kind, Some(Kind::InvalidArgument | Kind::Unimplemented)), "{target}: {kind:?}");
            self.document.note("post", target);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_route_answers_as_documented() {
    let mut rig = Rig::start().await;
    let (one, two) = (rig.name("one"), rig.name("two"));

    // A client that watches the images receives the list at once.
    let mut followed =
        client::events(&rig.socket, Method::GET, "/v1/images/events", Body::empty()).await.expect("a stream");
    let next = async |rig: &mut Rig, followed: &mut client::Events| {
        let (name, data) = followed.next().await.expect("an event").expect("the stream goes on");
        let data: Value = serde_json::from_str(&data).expect("JSON");
        rig.document.check_event("get", "/v1/images/events", &name, &data);
        let list: ImageList = serde_json::from_value(data).expect("a list");
        list.images.into_iter().flat_map(|image| image.repo_tags).collect::<Vec<_>>()
    };
    assert_eq!(next(&mut rig, &mut followed).await, Vec::<String>::new());

    // A pull whose progress is watched.
    let mut events = rig.follow(&rig.socket.clone(), "/v1/images/pull", json!({"image": one})).await;
    let (name, pulled) = events.pop().expect("a last event");
    assert_eq!(name, "pulled", "{events:?}");
    assert!(events.len() > 3 && events.iter().all(|(name, _)| name == "progress"), "{events:?}");
    assert_eq!((&pulled["image"], &pulled["pulled"]), (&json!(one), &json!(true)));

    assert_eq!(next(&mut rig, &mut followed).await, [one.as_str()]);
    let gone = rig.ask("post", &format!("/v1/images/remove?image={one}"), Body::empty()).await;
    assert_eq!(gone["results"], json!([{"image": one}]));
    assert_eq!(next(&mut rig, &mut followed).await, Vec::<String>::new());
    drop(followed);
    rig.ask("post", "/v1/images/pull", json!({"image": one}).to_string()).await;

    // One that is present, one with an error in words, one without an image.
    let again = rig.ask("post", "/v1/images/pull", json!({"image": one, "policy": "IfNotPresent"}).to_string()).await;
    assert_eq!((&again["imageRef"], &again["pulled"]), (&pulled["imageRef"], &json!(false)));
    let absent = rig.name("absent");
    let send = |body: Value| client::send::<Value>(&rig.socket, Method::POST, "/v1/images/pull", body.to_string());
    let error = send(json!({"image": absent})).await.expect_err("there is none");
    assert!(error.kind() == Kind::NotFound && error.to_string().contains("absent"), "{error}");
    for wrong in [json!({}), json!({"image": ""}), json!({"image": one, "policy": "Sometimes"}), json!({"imgae": one})]
    {
        assert_eq!(send(wrong.clone()).await.expect_err("wrong").kind(), Kind::InvalidArgument, "{wrong}");
    }

    // A pod's images.
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: a, image: '{one}'}}, \
         {{name: b, image: '{two}'}}, {{name: c, image: '{absent}'}}]}}\n"
    );
    let ensured = rig.ask("post", "/v1/ensure", manifest).await;
    let results: Vec<&str> =
        ensured["containers"].as_array().into_iter().flatten().filter_map(|row| row["result"].as_str()).collect();
    assert_eq!(results, ["present", "pulled", "ErrImagePull"]);
    let refused = client::send::<Value>(&rig.socket, Method::POST, "/v1/ensure", "kind: Nothing").await;
    assert_eq!(refused.expect_err("no pod").kind(), Kind::InvalidArgument);

    // The pulls so far.
    let pulls = rig.ask("get", "/v1/pulls", Body::empty()).await;
    let outcomes: Vec<&str> =
        pulls["ended"].as_array().into_iter().flatten().filter_map(|pull| pull["outcome"].as_str()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "pulled").count(), 3, "{pulls:#}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "failed").count(), 2, "{pulls:#}");
    let mut events =
        client::events(&rig.socket, Method::GET, "/v1/pulls/events?since=0", Body::empty()).await.expect("a stream");
    let (name, data) = events.next().await.expect("an event").expect("the stream goes on");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    rig.document.check_event("get", "/v1/pulls/events", &name, &data);
    assert_eq!(data["ended"], pulls["ended"]);
    drop(events);

    // An exported archive can be imported again.
    let images = rig.ask("get", "/v1/images", Body::empty()).await;
    assert_eq!(images["images"].as_array().map(Vec::len), Some(2));
    let query = |name: &str| url::form_urlencoded::Serializer::new(String::new()).append_pair("image", name).finish();
    for format in ["oci-archive", "docker-archive"] {
        let target = format!("/v1/images/export?{}&format={format}", query(&one));
        let archive = client::bytes(&rig.socket, Method::POST, &target).await.expect("an archive");
        assert!(archive.len() > 130_000, "{format}: {}", archive.len());
        let removed = rig.ask("post", &format!("/v1/images/remove?{}", query(&one)), Body::empty()).await;
        assert_eq!(removed["results"], json!([{"image": one}]));
        let imported = rig.ask("post", "/v1/images/import", archive).await;
        assert_eq!(imported["images"][0]["id"], pulled["imageRef"], "{format}");
    }
    rig.document.note("post", "/v1/images/export");
    let refused = client::bytes(&rig.socket, Method::POST, "/v1/images/export?image=absent").await;
    assert_eq!(refused.expect_err("it is absent").kind(), Kind::NotFound);
    let broken = client::send::<Value>(&rig.socket, Method::POST, "/v1/images/import", "no archive").await;
    broken.expect_err("it is no archive");

    rig.ask_for_the_store(&one, &two).await;
    rig.ask_on_the_store_socket(&one).await;

    // Everything else.
    let id = query(pulled["imageRef"].as_str().expect("an id"));
    for target in [
        "/configz",
        "/v1/version",
        "/v1/openapi.json",
        "/v1/backoff",
        "/v1/gc",
        "/v1/gc/plan?allUnused=true",
        "/v1/gc/containers",
        "/v1/image-sets",
        "/v1/names",
        "/v1/pins",
        "/v1/status",
    ] {
        rig.ask("get", target, Body::empty()).await;
    }
    for target in [
        "/v1/backoff/reset?all=true",
        "/v1/check?deep=true",
        "/v1/convert?to=dir",
        "/v1/pins?pattern=registry.test/kept",
        "/v1/pins/remove?pattern=registry.test/kept",
        "/v1/gc/room?needed=1",
        &format!("/v1/gc/protect?{id}"),
        "/v1/gc/collect?allUnused=true&minAgeSeconds=0",
        "/v1/gc/containers",
    ] {
        rig.ask("post", target, Body::empty()).await;
    }
    for target in ["/healthz", "/livez", "/readyz", "/metrics"] {
        client::ask(&rig.socket, Method::GET, target).await.unwrap_or_else(|error| panic!("{target}: {error}"));
        rig.document.note("get", target);
    }
    // This agent runs no pods: those routes have a test of their own.
    let elsewhere: Vec<String> = pod_routes::ROUTES.iter().map(|route| format!("get /v1{}", route.path)).collect();
    let mut left = rig.document.left();
    left.retain(|route| !elsewhere.contains(route));
    assert_eq!(left, Vec::<String>::new(), "documented and not asked");
    rig.store.stop().await;
    rig.engine.shutdown().await;
    drop(rig.directory);
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the example is a program")]
async fn the_example_in_rust_shows_pulls_until_the_agent_ends() {
    let rig = Rig::start().await;
    let name = rig.name("one");
    let body = json!({"image": name}).to_string();
    client::send::<Value>(&rig.socket, Method::POST, "/v1/images/pull", body).await.expect("a pull");
    // Cargo puts the examples of the crate next to the directory of this program.
    let programs = std::env::current_exe().expect("this program");
    let example = programs.ancestors().nth(2).expect("it lies in deps/").join("examples/watch_pulls");
    let mut example = tokio::process::Command::new(&example)
        .arg(&rig.socket)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    let mut lines = tokio::io::BufReader::new(example.stdout.take().expect("piped")).lines();
    let line = lines.next_line().await.expect("text").expect("a line");
    assert!(line.starts_with(&format!("{name}: Pulled in ")) && line.ends_with(" ms"), "{line}");
    rig.running.stop().await;
    assert_eq!(lines.next_line().await.expect("text"), None);
    assert!(example.wait().await.expect("it ends").success());
    rig.engine.shutdown().await;
}

#[test]
fn the_copy_in_the_documentation_is_the_document() {
    let text = serde_json::to_string_pretty(&super::openapi_document()).expect("JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let copy = std::fs::read_to_string(path).expect("docs/openapi.json");
    assert!(copy == text, "run: cargo run -p imagelet-agent --example openapi > docs/openapi.json");
}
