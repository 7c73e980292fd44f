//! Connecting: no listener, a peer that never answers, a peer without CRI, a connection that is lost and made again.

use base::lock::Mutex;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeImageService};
use cri_api::{Error, ImageService as _, Kind, RuntimeService as _};
use tempfile::TempDir;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;

use super::support::{Answers, Running, answers, endpoint_in, quick, raw, soon};
use crate::client::{ClientOptions, connect_image_service, connect_runtime_service};
use crate::pb;
use crate::server::{ServerOptions, bind};

#[tokio::test(start_paused = true)]
async fn absent_socket_fails_immediately() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let start = tokio::time::Instant::now();
    let error = connect_image_service(&endpoint, ClientOptions::default()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO, "the clock stands unless somebody waits");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.endpoint(), endpoint.to_string());
    let text = Error::from(error).message().to_owned();
    let want = format!(
        "validate CRI v1 image API for endpoint {:?}: connect to {endpoint}: No such file or directory (os error 2)",
        endpoint.to_string()
    );
    assert_eq!(text, want);
    let error = connect_runtime_service(&endpoint, ClientOptions::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("validate CRI v1 runtime API for endpoint"), "{error}");
}

#[tokio::test]
async fn socket_without_a_listener_fails_immediately() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    drop(UnixListener::bind(endpoint.path()).unwrap());
    let error = soon(connect_image_service(&endpoint, ClientOptions::default())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(Error::from(error).message().contains("Connection refused"));
}

#[tokio::test]
async fn waiting_client_connects_to_a_late_server() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let options = ClientOptions { wait: Duration::from_secs(10), ..quick() };
    let target = endpoint.clone();
    let connecting = TaskTracker::new().spawn(async move { connect_image_service(&target, options).await });
    let mut quiet = quick();
    quiet.wait = Duration::from_millis(30);
    soon(connect_image_service(&endpoint, quiet)).await.expect_err("nobody came in time");
    let _server = Running::on(bind(&endpoint).unwrap(), ServerOptions::new(Arc::new(FakeImageService::new()), "1"));
    soon(connecting).await.unwrap().unwrap();
}

#[tokio::test]
async fn silent_peer_is_unavailable() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let _never_accepts = UnixListener::bind(endpoint.path()).unwrap();
    let options = ClientOptions { connect_timeout: Duration::from_millis(50), ..quick() };
    let error = soon(connect_image_service(&endpoint, options)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let text = Error::from(error).message().to_owned();
    assert!(text.ends_with(&format!("connect to {endpoint}: no answer within 50ms")), "{text}");
}

#[tokio::test]
async fn peer_with_another_protocol_is_unavailable() {
    use std::io::Write as _;
    for reply in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let dir = TempDir::new().unwrap();
        let endpoint = endpoint_in(&dir);
        let listener = UnixListener::bind(endpoint.path()).unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(reply.as_bytes()).unwrap();
        });
        let error = soon(connect_image_service(&endpoint, quick())).await.unwrap_err();
        peer.join().unwrap();
        assert_eq!(error.kind(), Kind::Unavailable, "{reply:?}");
        let text = Error::from(error).message().to_owned();
        assert!(text.contains(&endpoint.to_string()), "{text}");
    }
}

#[tokio::test]
async fn connection_is_restored() {
    let fake = FakeImageService::new();
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let options = || ServerOptions::new(Arc::new(fake.clone()), "1");
    let first = Running::on(bind(&endpoint).unwrap(), options());
    let client = first.client_with(quick()).await;
    first.stop().await;
    for _ in 0..3 {
        let server = Running::on(bind(&endpoint).unwrap(), options());
        soon(async { while client.image_fs_info().await.is_err() {} }).await;
        server.stop().await;
        let error = soon(client.image_fs_info()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.message().contains(&endpoint.to_string()), "{error}");
    }
}

#[tokio::test]
async fn connection_attempts_are_spaced() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let fake = FakeImageService::new();
    let server = Running::on(bind(&endpoint).unwrap(), ServerOptions::new(Arc::new(fake), "1"));
    let client = server.client().await;
    server.stop().await;
    tokio::time::pause();
    client.image_fs_info().await.expect_err("the server is gone");
    client.image_fs_info().await.expect_err("the server is gone");
    let accepts = UnixListener::bind(endpoint.path()).unwrap();
    accepts.set_nonblocking(true).unwrap();
    // Within the pause the last error is returned and no connection is tried.
    let error = client.image_fs_info().await.unwrap_err();
    assert!(error.message().contains("No such file"), "{error}");
    accepts.accept().expect_err("an attempt within the pause");
    tokio::time::advance(Duration::from_secs(4)).await;
    let attempt = client.image_fs_info();
    let accepted = async {
        while accepts.accept().is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = attempt => panic!("nobody answered"),
        () = accepted => {}
    }
}

#[tokio::test]
async fn cut_connection_ends_its_calls() {
    let fake = FakeImageService::new();
    let gate = fake.faults().hold(CallKind::ListImages);
    // A runtime of its own: when it is dropped, the peer dies in the middle of a call, as after a kill.
    let peer = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = {
        let _inside = peer.enter();
        Running::fake(&fake)
    };
    let client = server.client_with(quick()).await;
    let calling = client.clone();
    let list = TaskTracker::new().spawn(async move { calling.list_images(None).await });
    soon(gate.until_waiting(1)).await;
    peer.shutdown_background();
    let error = soon(list).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.message().starts_with(&format!("lost the connection to {}: ", server.endpoint)), "{error}");
    let error = soon(client.list_images(None)).await.unwrap_err();
    assert!(error.message().starts_with(&format!("connect to {}: ", server.endpoint)), "{error}");
}

#[tokio::test]
async fn peer_without_the_image_api_is_named() {
    let raw = Answers::default().serve();
    let error = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unimplemented);
    let text = Error::from(error).message().to_owned();
    let start = format!("validate CRI v1 image API for endpoint {:?}: unknown method", raw.endpoint.to_string());
    assert!(text.starts_with(&start), "{text}");
}

#[derive(Clone)]
struct Runtime(pb::VersionResponse);

#[tonic::async_trait]
impl pb::runtime_service_server::RuntimeService for Runtime {
    async fn version(
        &self,
        request: tonic::Request<pb::VersionRequest>,
    ) -> Result<tonic::Response<pb::VersionResponse>, Status> {
        assert_eq!(request.into_inner().version, "0.1.0");
        Ok(tonic::Response::new(self.0.clone()))
    }
}

#[tokio::test]
async fn versions_are_checked() {
    let version = |fields: [&str; 4]| {
        let [version, runtime_name, runtime_version, runtime_api_version] = fields.map(str::to_owned);
        pb::VersionResponse { version, runtime_name, runtime_version, runtime_api_version }
    };
    let cases = [
        (["0.1.0", "r", "1", "v1"], Ok(())),
        (["0.2.0", "r", "1", "v1"], Err("runtime api version is not supported")),
        (["", "r", "1", "v1"], Err("not all fields are set in VersionResponse (missing version)")),
        (["0.1.0", "", "", ""], Err("(missing runtime_name, runtime_version, runtime_api_version)")),
    ];
    for (fields, want) in cases {
        let raw = raw(pb::runtime_service_server::RuntimeServiceServer::new(Runtime(version(fields))));
        let got = soon(connect_runtime_service(&raw.endpoint, ClientOptions::default())).await;
        match (got, want) {
            (Ok(service), Ok(())) => {
                assert_eq!(soon(service.version()).await.unwrap().runtime_name, "r");
                assert_eq!(service.endpoint(), &raw.endpoint);
            }
            (Err(error), Err(want)) => {
                let text = Error::from(error).message().to_owned();
                assert!(text.starts_with("validate CRI v1 runtime API for endpoint"), "{text}");
                assert!(text.contains(want), "{text}");
            }
            (got, want) => panic!("{fields:?}: {got:?}, want {want:?}"),
        }
    }
}

#[tokio::test]
async fn requests_match_the_kubelets() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let header = |name: &str| request.headers().get(name).map(|v| v.to_str().unwrap_or_default().to_owned());
        let line = format!("{} {:?} {:?}", request.uri(), request.version(), header("user-agent"));
        record.lock().push(line);
        async { Ok(Status::unimplemented("no").into_http()) }
    });
    let raw = raw(service);
    let options = ClientOptions { user_agent: "test/1".into(), ..ClientOptions::default() };
    soon(connect_image_service(&raw.endpoint, options)).await.unwrap_err();
    let seen = seen.lock();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].starts_with("http://localhost/runtime.v1.ImageService/ImageFsInfo HTTP/2.0"), "{seen:?}");
    assert!(seen[0].contains("test/1"), "{seen:?}");
}

/// containerd listens before its CRI part is up.
#[tokio::test]
async fn unready_peer_is_retried() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: Request<Body>| {
        let mut asked = count.lock();
        *asked += 1;
        let status = if *asked < 4 { Status::unknown("server is not initialized yet") } else { Status::internal("up") };
        async { Ok(status.into_http()) }
    });
    let raw = raw(service);
    let error = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap_err();
    assert_eq!((error.kind(), *asked.lock()), (Kind::Internal, 4));
}

#[tokio::test]
async fn valid_peer_is_accepted() {
    let raw = answers().serve();
    soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap();
}
