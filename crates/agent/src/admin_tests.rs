//! Every route over a real socket, with the client that the commands use.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{Error, Kind};
use image_manager::{
    Cause, EnsureImageRequest, ImageManager, LogRecorder, Metrics, MustPullResult, Operation, PodRef, PullPolicy,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::backoff::{BackoffList, NO_BACKOFF_HERE, ResetCount};
use super::*;
use crate::api::client::{self, Method};
use crate::api::gc::CollectRequest;
use crate::collection::{Collection, CollectionParts, Collects as _};

/// A running admin endpoint in a directory of its own.
struct Rig {
    fake: FakeImageService,
    metrics: Arc<Metrics>,
    places: AdminAddress,
    collection: Arc<Collection>,
    running: Option<AdminServer>,
    _directory: tempfile::TempDir,
}

impl AdminAddress {
    /// This socket, which must be listened on, and nothing else.
    pub(crate) fn at(socket: PathBuf) -> Self {
        Self { socket, required: true, group: None, others_read: false, metrics: None }
    }
}

/// The default places of a root in `directory`.
fn places(directory: &Path) -> AdminAddress {
    AdminAddress { required: false, ..AdminAddress::at(directory.join("root/admin.sock")) }
}

fn admin() -> Admin {
    Admin::new(|registry| Metrics::new().register(registry), Arc::new(FakeImageService::new()))
}

/// A collection of what a fake has, which does not wait for ages.
async fn collection(root: &Path, fake: &FakeImageService) -> Arc<Collection> {
    let parts = CollectionParts::for_tests(root, fake, "", Ok(None));
    Arc::new(Collection::open(parts).await.expect("it opens"))
}

impl Rig {
    async fn start(change: impl FnOnce(&mut AdminAddress)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut places = places(directory.path());
        change(&mut places);
        let (fake, metrics) = (FakeImageService::new(), Metrics::new());
        let collection = collection(&directory.path().join("root"), &fake).await;
        let register = |registry: &mut Registry| {
            metrics.register(registry);
            collection.register(registry);
        };
        let admin = Admin { collection: Some(Arc::clone(&collection)), ..Admin::new(register, Arc::new(fake.clone())) };
        let running = Some(admin.start(&places, &CancellationToken::new()).await.expect("it starts"));
        Self { fake, metrics, places, collection, running, _directory: directory }
    }

    fn socket(&self) -> &Path {
        &self.places.socket
    }

    async fn ask(&self, method: Method, target: &str) -> Result<String, (Kind, String)> {
        let answer = client::ask(self.socket(), method, target).await;
        answer.map_err(|error| (error.kind(), error.to_string().replace(&self.shown(), "SOCKET")))
    }

    fn shown(&self) -> String {
        self.socket().display().to_string()
    }
}

fn refusal(target: &str, rest: &str) -> Result<String, (Kind, String)> {
    Err((Kind::Unknown, format!("SOCKET refuses {target}: {rest}")))
}

#[tokio::test]
async fn health() {
    let rig = Rig::start(|_| {}).await;
    for target in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(rig.ask(Method::GET, target).await, Ok("ok\n".to_owned()), "{target}");
    }
    rig.fake.faults().fail(CallKind::ImageFsInfo, Error::new(Kind::Unavailable, "connection refused"));
    let want = "503 Service Unavailable: not ready: the image service: connection refused";
    assert_eq!(rig.ask(Method::GET, "/readyz").await, refusal("/readyz", want));
    assert_eq!(rig.ask(Method::GET, "/healthz").await, Ok("ok\n".to_owned()), "this process is well");
    let error =
        |code: &str, message: &str| format!(r#"{{"code":"{code}","message":"{message}: GET /v1/openapi.json says "#);
    let want = "404 Not Found: ".to_owned() + &error("NotFound", "there is no /") + r#"what there is"}"#;
    assert_eq!(rig.ask(Method::GET, "/").await, refusal("/", &want));
    let want =
        "405 Method Not Allowed: ".to_owned() + &error("InvalidArgument", "/healthz has other methods") + r#"which"}"#;
    assert_eq!(rig.ask(Method::POST, "/healthz").await, refusal("/healthz", &want));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_is_not_ready() {
    let fake = FakeImageService::new();
    let _shut = fake.faults().hold(CallKind::ImageFsInfo);
    let state = Admin::new(|_| {}, Arc::new(fake));
    let refusal = routes::ready(axum::extract::State(Arc::new(state))).await.expect_err("not ready");
    assert_eq!(refusal.0, axum::http::StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn metrics_as_text() {
    let rig = Rig::start(|_| {}).await;
    rig.metrics.coalesced();
    let text = rig.ask(Method::GET, "/metrics").await.expect("metrics");
    for line in [
        "# TYPE imagelet_pulls_coalesced_total counter\nimagelet_pulls_coalesced_total 1\n",
        &format!(
            "# TYPE imagelet_build_info gauge\nimagelet_build_info{{version=\"{}\"}} 1\n",
            env!("CARGO_PKG_VERSION")
        ),
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds ",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    assert!(!text.contains("# EOF"), "the older form is for those who ask for nothing");
}

/// Names and types of the metrics, in the older form.
fn types(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    pairs.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

#[tokio::test]
async fn the_page_names_every_metric() {
    let rig = Rig::start(|_| {}).await;
    let m = &rig.metrics;
    // A metric with labels appears with its first use.
    m.ensure_request(PullPolicy::Always, None, None);
    m.pull_duration(None, Duration::ZERO);
    m.must_pull_check(MustPullResult::Error);
    m.operation(Operation::ListImages, Duration::ZERO, false);
    m.failed(Cause::Other);
    rig.fake.preload("registry.test/unused:1", &FakeImage::new("unused"));
    let everything = CollectRequest { all_unused: true, ..CollectRequest::default() };
    rig.collection.collect(&everything).await.expect("collected");
    let told = types(&rig.ask(Method::GET, "/metrics").await.expect("metrics"));
    let page = include_str!("../../../docs/admin.md");
    // Those of pods have a test of their own.
    let (page, _) = page.split_once("### Pods").expect("a heading");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    // The program registers credential providers and the bytes of pulls: product tests show them.
    let of_program =
        |name: &str| name.starts_with("kubelet_credential_provider_") || name == "imagelet_pull_bytes_total";
    let rows = rows.filter(|(name, _)| name.contains('_') && !of_program(name));
    let written: BTreeMap<String, String> =
        rows.map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or_default().to_owned())).collect();
    assert_eq!(told, written, "what is told | what docs/admin.md says");
    for cause in Cause::ALL {
        assert!(page.contains(&format!("`{cause}`")), "{cause}");
    }
}

#[tokio::test]
async fn without_a_manager_nothing_waits() {
    let rig = Rig::start(|_| {}).await;
    let list: BackoffList = client::ask_json(rig.socket(), Method::GET, "/v1/backoff").await.expect("a list");
    assert_eq!(list, BackoffList { entries: Vec::new(), note: Some(NO_BACKOFF_HERE.to_owned()) });
    let done: ResetCount =
        client::ask_json(rig.socket(), Method::POST, "/v1/backoff/reset?all=true").await.expect("done");
    assert_eq!(done, ResetCount { reset: 0, note: Some(NO_BACKOFF_HERE.to_owned()) });
    let refused = client::ask_json::<ResetCount>(rig.socket(), Method::POST, "/v1/backoff/reset?image=a&pod=b").await;
    let error = refused.expect_err("one of them");
    assert_eq!(
        (error.kind(), error.to_string()),
        (Kind::InvalidArgument, "more than one of all, image, pod, uid and registry".to_owned())
    );
    let refused = client::ask_json::<ResetCount>(rig.socket(), Method::GET, "/v1/backoff/reset?all=true").await;
    assert!(refused.expect_err("it changes something").to_string().contains("/v1/backoff/reset has other methods"));
}

#[tokio::test]
async fn image_sets_are_listed_where_they_are_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let unknown = Some(Arc::new(|| None) as image_sets::ImageSets);
    for (name, image_sets, status) in
        [("none", None, "follows no image sets"), ("unknown", unknown, "are not known yet")]
    {
        let places = places(&directory.path().join(name));
        let running =
            Admin { image_sets, ..admin() }.start(&places, &CancellationToken::new()).await.expect("it starts");
        let refused = client::ask(&places.socket, Method::GET, "/v1/image-sets").await.expect_err("no list");
        assert!(refused.to_string().contains(status), "{refused}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_process_without_a_socket_answers_for_metrics_alone() {
    let at = "127.0.0.1:0".parse().expect("an address");
    let running = Admin::running(|_| {}).start_metrics(at, &CancellationToken::new()).await.expect("it starts");
    let address = running.tcp.expect("an address");
    let ask = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        text
    };
    for (path, status) in [("/readyz", 200), ("/livez", 200), ("/v1/version", 404), ("/configz", 404)] {
        let answer = ask(path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
    assert!(ask("/metrics").await.contains("\nimagelet_build_info{"));
    running.stop().await;
}

#[tokio::test]
async fn back_off_is_listed_and_forgotten() {
    let (fake, metrics) = (FakeImageService::new(), Metrics::new());
    let options = image_manager::Options::default();
    let manager = Arc::new(ImageManager::new(Arc::new(fake.clone()), Arc::new(LogRecorder), options));
    for (pod, image) in [("a", "registry.test/x:1"), ("a", "registry.test/y:1"), ("b", "other.test/x:1")] {
        let pod = PodRef { namespace: "shop".into(), name: pod.into(), uid: format!("uid-{pod}"), ..PodRef::default() };
        let request = EnsureImageRequest { pod, ..EnsureImageRequest::new(image) };
        manager.ensure_image_exists(request).await.expect_err("there is no such image");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let places = places(directory.path());
    let socket = &places.socket;
    let admin = Admin { manager: Some(manager), ..Admin::new(|registry| metrics.register(registry), Arc::new(fake)) };
    let _running = admin.start(&places, &CancellationToken::new()).await.expect("it starts");

    let list = async || -> BackoffList { client::ask_json(socket, Method::GET, "/v1/backoff").await.expect("a list") };
    let reset = async |query: &str| -> usize {
        let done: ResetCount =
            client::ask_json(socket, Method::POST, &format!("/v1/backoff/reset?{query}")).await.expect("done");
        assert_eq!(done.note, None);
        done.reset
    };
    let images = |list: BackoffList| -> Vec<String> { list.entries.into_iter().map(|entry| entry.image).collect() };
    let all = list().await;
    let first = &all.entries[0];
    assert_eq!((first.namespace.as_str(), first.pod.as_str(), first.uid.as_str()), ("shop", "a", "uid-a"));
    assert_eq!((first.cause.as_str(), first.failures), ("not_found", 1));
    assert!(first.message.starts_with("ErrImagePull: "), "{}", first.message);
    assert!((1..=first.window_milliseconds).contains(&first.remaining_milliseconds), "{first:?}");
    assert_eq!(images(all), ["registry.test/x:1", "registry.test/y:1", "other.test/x:1"]);
    assert_eq!(reset("image=registry.test/x:2").await, 0, "another image");
    assert_eq!(reset("image=registry.test%2Fx%3A1").await, 1);
    assert_eq!(images(list().await), ["registry.test/y:1", "other.test/x:1"]);
    assert_eq!(reset("pod=shop/a").await, 1);
    assert_eq!(reset("all=true").await, 1);
    assert_eq!(list().await, BackoffList::default());
}

#[tokio::test]
async fn socket_belongs_to_its_owner_and_is_removed_with_it() {
    let mut rig = Rig::start(|_| {}).await;
    let mode = |path: &Path| std::fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!(mode(rig.socket()), 0o600);
    assert_eq!(mode(rig.socket().parent().expect("a directory")), 0o700);
    rig.running.take().expect("it runs").stop().await;
    assert!(!rig.socket().exists());
    let (kind, line) = rig.ask(Method::GET, "/metrics").await.expect_err("nobody is there");
    assert_eq!(kind, Kind::Unavailable);
    assert!(line.starts_with("nothing answers on SOCKET: `imagelet run`, `imagelet serve` and "), "{line}");
}

#[tokio::test]
async fn a_socket_is_opened_to_a_group_or_to_everyone_by_configuration() {
    let own = rustix::process::getegid().as_raw().to_string();
    for (group, others_read, mode) in [(Some(own.clone()), false, 0o660), (Some(own), true, 0o666), (None, true, 0o666)]
    {
        let rig = Rig::start(|places| (places.group, places.others_read) = (group, others_read)).await;
        let found = std::fs::symlink_metadata(rig.socket()).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(found, mode);
        assert_eq!(rig.ask(Method::GET, "/livez").await, Ok("ok\n".to_owned()));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let unknown = AdminAddress { required: true, group: Some("no-such-group".to_owned()), ..places(directory.path()) };
    let error = admin().start(&unknown, &CancellationToken::new()).await.err().expect("there is none");
    let line = Error::from_source(Kind::Unknown, &error).message().to_owned();
    assert!(line.ends_with("adminGroup: /etc/group has no group \"no-such-group\""), "{line}");
    assert!(!unknown.socket.exists());
}

#[tokio::test]
async fn versions_are_reported_and_checked() {
    let rig = Rig::start(|_| {}).await;
    let ask = async |version: &str, target: &str| {
        let mut stream = tokio::net::UnixStream::connect(rig.socket()).await.expect("connect");
        let version = if version.is_empty() { String::new() } else { format!("Imagelet-Api-Version: {version}\r\n") };
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{version}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        assert!(text.contains("imagelet-api-version: 1.0\r\n"), "{target}: {text}");
        text
    };
    for version in ["", "1", "1.0"] {
        let answer = ask(version, "/v1/version").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""mayChange":true"#), "{answer}");
    }
    for (version, target, part) in [
        ("1.1", "/v1/version", r#"this agent speaks version 1.0 of the API, and version \"1.1\" is needed"#),
        ("2.0", "/v1/version", "version 1.0 of the API"),
        ("", "/v2/pulls", "/v2/pulls is of version 2"),
    ] {
        let answer = ask(version, target).await;
        assert!(answer.starts_with("HTTP/1.1 501 ") && answer.contains(part), "{target}: {answer}");
    }
    let answer = ask("", "/version").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains(r#"{"code":"NotFound","#), "{answer}");
}

#[tokio::test]
async fn an_agent_without_the_api_is_an_older_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("admin.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let old = axum::Router::new().route("/gc", axum::routing::get(async || "{}"));
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let serve = axum::serve(listener, old).with_graceful_shutdown(stop.clone().cancelled_owned());
    tasks.spawn(async move { serve.await.expect("it serves") });
    let error = client::ask_json::<serde_json::Value>(&socket, Method::GET, "/v1/gc").await.expect_err("it is old");
    assert_eq!(error.kind(), Kind::Unimplemented);
    let line = error.to_string();
    assert!(line.contains("is older than this command, which needs version 1.0 of its API: restart it"), "{line}");
    stop.cancel();
}

#[tokio::test]
async fn a_socket_of_the_dead_is_replaced_and_one_of_the_living_left() {
    let dead = |places: &mut AdminAddress| {
        std::fs::create_dir_all(places.socket.parent().expect("a directory")).expect("a directory");
        drop(UnixListener::bind(&places.socket).expect("a socket"));
    };
    let rig = Rig::start(dead).await;
    assert_eq!(rig.ask(Method::GET, "/livez").await, Ok("ok\n".to_owned()));

    // The default address belongs to the first process, and the second command runs without an endpoint.
    let stop = CancellationToken::new();
    drop(admin().start(&rig.places, &stop).await.expect("it goes on"));
    assert_eq!(rig.ask(Method::GET, "/livez").await, Ok("ok\n".to_owned()), "the first still answers");

    // One that was asked for must be had.
    let refused = admin().start(&AdminAddress { required: true, ..rig.places.clone() }, &stop).await;
    let error = refused.err().expect("it is taken");
    let line = Error::from_source(Kind::Unknown, &error).message().to_owned();
    let want = format!("listen on {0}: another process answers on unix://{0}: process ", rig.shown());
    assert!(line.starts_with(&want), "{line}");
}

#[tokio::test]
async fn tcp_shows_health_and_metrics_and_nothing_else() {
    let rig = Rig::start(|places| places.metrics = Some("127.0.0.1:0".parse().expect("an address"))).await;
    let address = rig.running.as_ref().expect("it runs").tcp.expect("it listens");
    let ask = async |host: &str, target: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
        let accept = "Accept: application/openmetrics-text; version=1.0.0";
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        text
    };
    let get = async |target: &str| ask(&address.to_string(), target).await;
    assert!(get("/livez").await.ends_with("\r\n\r\nok\n"));
    let metrics = get("/metrics").await;
    assert!(
        metrics.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    for other in ["/v1/backoff", "/configz", "//metrics", "/./metrics", "/%6detrics", "/metrics/"] {
        assert!(get(other).await.starts_with("HTTP/1.1 404"), "{other}");
    }
    // A web page whose name resolves to loopback reads nothing.
    for target in ["/metrics", "/livez", "/v1/backoff"] {
        for host in ["evil.example", "evil.example:9095", ""] {
            let answer = ask(host, target).await;
            assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("# EOF"), "{host} {target}: {answer}");
        }
        assert!(!ask("localhost:9095", target).await.starts_with("HTTP/1.1 421 "), "{target}");
    }
}

#[tokio::test]
async fn other_spellings_of_routes_are_not_found() {
    let rig = Rig::start(|_| {}).await;
    let asked = |target: &str| {
        let (socket, target) = (rig.socket().to_owned(), target.to_owned());
        async move {
            let mut stream = tokio::net::UnixStream::connect(socket).await.expect("connect");
            let request =
                format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("an answer");
            text.split(' ').nth(1).unwrap_or_default().to_owned()
        }
    };
    assert_eq!(asked("/v1/backoff/reset?all=true").await, "200");
    let mut tried = 0;
    for (_, route) in routes::table() {
        let path = route.path.replace("{namespace}", "shop").replace("{name}", "web");
        let last = path.rsplit('/').next().unwrap_or_default().to_owned();
        for spelling in [
            format!("//v1{path}"),
            format!("/v1/{path}"),
            format!("/./v1{path}"),
            format!("/v1/..{path}"),
            format!("/v1/x/..{path}"),
            format!("/%761{path}"),
            format!("/v1{path}/"),
            format!("/v1{path}/."),
            format!("/v1{path}%2f"),
            format!("/v1{path}/../{last}"),
            format!("/v1%2f{}", &path[1..]),
            path.clone(),
        ] {
            assert_eq!(asked(&spelling).await, "404", "{spelling}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}
