//! The server beyond single calls: its stand-in for a runtime, the calls that it does not serve, and its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{ImageService as _, Kind, PullImageRequest, RuntimeService as _};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Code;
use tonic::codegen::Bytes;
use tonic::codegen::http::Request;
use tonic::transport::{Channel, Uri};

use super::support::{Running, endpoint_in, quick, soon};
use crate::client::{AgentAddress, ClientOptions, connect_image_service, connect_runtime_service};
use crate::pb::runtime_service_client::RuntimeServiceClient;
use crate::server::{ServerOptions, serve};
use crate::{Endpoint, pb};

const NAME: &str = "registry.test/app:1";

fn options(grace: Duration) -> (FakeImageService, ServerOptions) {
    let fake = FakeImageService::new();
    fake.publish(NAME, &FakeImage::new("app"));
    let options = ServerOptions { grace, ..ServerOptions::new(Arc::new(fake.clone()), "1.2.3") };
    (fake, options)
}

fn plain_channel(endpoint: &Endpoint) -> Channel {
    let path = endpoint.path().to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Channel::builder(Uri::from_static("http://localhost")).connect_with_connector_lazy(connector)
}

#[tokio::test]
async fn server_without_a_runtime_lists_no_pods() {
    let server = Running::fake(&FakeImageService::new());
    let runtime = soon(connect_runtime_service(&server.endpoint, ClientOptions::default())).await.unwrap();
    let version = soon(runtime.version()).await.unwrap();
    assert_eq!((version.runtime_name.as_str(), version.runtime_version.as_str()), ("imagelet", "1.2.3"));
    let status = soon(runtime.status(true)).await.unwrap();
    let conditions: Vec<_> = status.conditions.iter().map(|c| (c.kind.as_str(), c.status)).collect();
    assert_eq!(conditions, [("RuntimeReady", false), ("NetworkReady", false)]);
    assert_eq!(soon(runtime.list_pod_sandboxes(None)).await.unwrap(), []);
    assert_eq!(soon(runtime.list_containers(None)).await.unwrap(), []);
}

#[tokio::test]
async fn agent_names_its_admin_socket() {
    for path in [None, Some("/var/lib/imagelet/admin.sock"), Some("/tmp/a b/\u{e4}.sock")] {
        let admin_socket = path.map(PathBuf::from);
        let server = Running::with(ServerOptions { admin_socket, ..options(Duration::ZERO).1 });
        let client = soon(connect_image_service(&server.endpoint, ClientOptions::default())).await.unwrap();
        let agent =
            path.map(|path| AgentAddress { socket: path.into(), instance: base::process_instance().to_owned() });
        assert_eq!(client.agent(), agent.as_ref());
    }
}

#[tokio::test]
async fn unserved_calls_are_unimplemented() {
    let server = Running::fake(&FakeImageService::new());
    let mut client = RuntimeServiceClient::new(plain_channel(&server.endpoint));
    let status = soon(client.run_pod_sandbox(pb::RunPodSandboxRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().starts_with("runtime.v1.RuntimeService/RunPodSandbox: this endpoint serves images"));
    let status = soon(client.get_container_events(pb::GetEventsRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    // The same connection still works.
    soon(client.version(pb::VersionRequest::default())).await.unwrap();
}

#[tokio::test]
async fn client_deadline_is_respected() {
    let (fake, options) = options(Duration::ZERO);
    let gate = fake.faults().hold(CallKind::PullImage);
    let server = Running::with(options);
    // By hand: tonic's client has a timer of its own, and the server's answer would race with it.
    let stream = TokioIo::new(UnixStream::connect(server.endpoint.path()).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let tasks = TaskTracker::new();
    tasks.spawn(connection);
    let request = Request::post("http://localhost/runtime.v1.ImageService/PullImage")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "30m")
        .body(Full::<Bytes>::from(&[0u8; 5][..]))
        .unwrap();
    let answer = soon(client.send_request(request)).await.unwrap();
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("grpc-status"), (Code::DeadlineExceeded as i32).to_string());
    let message = header("grpc-message");
    assert!(message.starts_with("runtime.v1.ImageService/PullImage"), "{message}");
    assert!(message.ends_with("within%2030ms") || message.ends_with("within 30ms"), "{message}");
    soon(gate.until_waiting(0)).await;
}

#[tokio::test]
async fn idle_clients_do_not_hold_the_server() {
    let (_, options) = options(Duration::from_secs(60));
    let server = Running::with(options);
    let path = server.endpoint.path().to_owned();
    let client = server.client().await;
    server.stop().await;
    assert!(!path.exists(), "the socket goes with the server");
    assert_eq!(soon(client.image_fs_info()).await.unwrap_err().kind(), Kind::Unavailable);
}

#[tokio::test]
async fn dropped_server_ends_its_tasks() {
    let (fake, options) = options(Duration::from_secs(60));
    let gate = fake.faults().hold(CallKind::PullImage);
    let dir = tempfile::TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let never = CancellationToken::new();
    let target = endpoint.clone();
    let pull = TaskTracker::new().spawn(async move {
        let patient = ClientOptions { wait: Duration::from_secs(10), ..quick() };
        let client = connect_image_service(&target, patient).await.unwrap();
        client.pull_image(PullImageRequest::new(NAME)).await
    });
    tokio::select! {
        end = serve(&endpoint, options, never.clone()) => panic!("{end:?}"),
        () = soon(gate.until_waiting(1)) => {}
    }
    assert_eq!(soon(pull).await.unwrap().unwrap_err().kind(), Kind::Unavailable);
    soon(gate.until_waiting(0)).await;
    assert!(!endpoint.path().exists());
    assert!(!never.is_cancelled(), "the token of the caller is the caller's");
}

#[tokio::test]
async fn idle_client_is_disconnected() {
    let (_, options) = options(Duration::ZERO);
    let server = Running::with(options);
    let mut mute = UnixStream::connect(server.endpoint.path()).await.unwrap();
    // It is accepted: the server has sent its settings.
    soon(mute.readable()).await.unwrap();
    server.stop().await;
    let mut rest = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut mute, &mut rest)).await.expect("the end of the stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once() {
    let (fake, options) = options(Duration::ZERO);
    let server = Running::with(options);
    let clients = (0..32).map(|_| async {
        let client = server.client().await;
        let calls = (0..32).map(|_| async {
            client.pull_image(PullImageRequest::new(NAME)).await.unwrap();
            assert_eq!(client.list_images(None).await.unwrap().len(), 1);
        });
        futures::future::join_all(calls).await;
    });
    soon(futures::future::join_all(clients)).await;
    assert_eq!(fake.call_kinds().iter().filter(|kind| **kind == CallKind::PullImage).count(), 1024);
}
