//! Calls for a runtime that pass through the server: the whole suite, every call of the contract and unknown ones, byte for byte,
//! and the error for a client when the runtime is down.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::conformance::runtime::{FakePods, run_all};
use cri_api::testing::{CallKind, FakeImageService, FakeRuntimeService};
use cri_api::{Error, Kind, RuntimeService as _};
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, Request, Response};

use super::pod_peer::Peer;
use super::support::{Raw, Running, quick, raw, soon};
use crate::Endpoint;
use crate::client::{ClientOptions, RemoteRuntimeService, connect_runtime_service};
use crate::server::ServerOptions;

async fn connected(endpoint: &Endpoint) -> RemoteRuntimeService {
    soon(connect_runtime_service(endpoint, ClientOptions::default())).await.unwrap()
}

/// A server in front of the runtime at this endpoint, which need not be up.
fn in_front_of(endpoint: &Endpoint, grace: Duration) -> Running {
    let runtime = Some(RemoteRuntimeService::of(endpoint, quick()).passthrough());
    let images = ServerOptions::new(Arc::new(FakeImageService::new()), "1.2.3");
    Running::with(ServerOptions { runtime, grace, ..images })
}

/// A peer that answers every call with the name of the call and the received bytes, in two messages, and a trailer.
fn echo() -> Raw {
    raw(tower::service_fn(|request: Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let asked = request.headers().get("x-asked").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-path", path.parse().unwrap());
        let frames = [Frame::data(body.clone()), Frame::data(body), Frame::trailers(trailers)];
        let body = StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
        let mut answer = Response::new(Body::new(body));
        answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        if let Some(asked) = asked {
            answer.headers_mut().insert("x-answered", asked);
        }
        Ok::<_, Infallible>(answer)
    }))
}

/// A client that knows no protobuf.
async fn bare_client(endpoint: &Endpoint, tasks: &TaskTracker) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(UnixStream::connect(endpoint.path()).await.unwrap());
    let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tasks.spawn(connection);
    client
}

fn call(name: &str, body: &'static [u8]) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://localhost/{name}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").header("x-asked", "yes");
    request.body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn runtime_behind_a_server_conforms() {
    let fake = FakePods::fake();
    let peer = Peer::new(fake.clone()).serve();
    let server = in_front_of(&peer.endpoint, Duration::ZERO);
    let client = connected(&server.endpoint).await;
    let report = run_all(&FakePods::new(&fake, Arc::new(client))).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), ["a_log_is_written"], "{report}");
}

#[tokio::test]
async fn every_call_is_forwarded_unchanged() {
    let peer = echo();
    let server = in_front_of(&peer.endpoint, Duration::ZERO);
    let tasks = TaskTracker::new();
    let mut client = bare_client(&server.endpoint, &tasks).await;
    let contract = include_bytes!(concat!(env!("OUT_DIR"), "/runtime.v1.bin"));
    let contract = FileDescriptorSet::decode(contract.as_slice()).unwrap();
    let services = contract.file.iter().flat_map(|file| &file.service);
    let runtime = services.into_iter().find(|service| service.name() == "RuntimeService").unwrap();
    let mut names: Vec<String> = runtime.method.iter().map(|method| method.name().to_owned()).collect();
    assert_eq!(names.len(), 37);
    // A call that a later version of CRI has.
    names.push("CallToCome".to_owned());
    // A message of 7 bytes: field 1, and field 3000, which is unknown to every version.
    let body: &[u8] = &[0, 0, 0, 0, 7, 0x0a, 1, b'x', 0xc2, 0xbb, 1, 0];
    for name in names {
        let name = format!("runtime.v1.RuntimeService/{name}");
        let answer = soon(client.send_request(call(&name, body))).await.unwrap();
        assert_eq!(answer.headers()["x-answered"], "yes", "{name}");
        let answer = soon(answer.into_body().collect()).await.unwrap();
        let trailers = answer.trailers().unwrap().clone();
        assert_eq!(trailers["x-path"].to_str().unwrap(), format!("/{name}"));
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(answer.to_bytes(), [body, body].concat(), "{name}");
    }
    // Calls that are not for a runtime are not forwarded.
    for (name, status) in
        [("runtime.v1alpha2.RuntimeService/Version", "12"), ("runtime.v1.ImageService/ListImages", "0")]
    {
        let answer = soon(client.send_request(call(name, &[0, 0, 0, 0, 0]))).await.unwrap();
        let head = answer.headers().get("grpc-status").cloned();
        let answer = soon(answer.into_body().collect()).await.unwrap();
        let told = head.or_else(|| answer.trailers()?.get("grpc-status").cloned());
        assert_eq!(told.unwrap(), status, "{name}");
    }
}

#[tokio::test]
async fn stopped_runtime_is_unavailable_until_it_restarts() {
    let (fake, directory) = (FakeRuntimeService::new(), tempfile::TempDir::new().unwrap());
    let endpoint = Endpoint::parse(&format!("unix://{}/runtime.sock", directory.path().display())).unwrap();
    let server = in_front_of(&endpoint, Duration::ZERO);
    let client = RemoteRuntimeService::of(&server.endpoint, quick());
    let error = soon(client.version()).await.unwrap_err();
    let want = format!("connect to {endpoint}: No such file or directory (os error 2)");
    assert_eq!((error.kind(), error.message()), (Kind::Unavailable, want.as_str()));
    let peer = Peer::new(fake.clone()).serve();
    std::os::unix::fs::symlink(peer.endpoint.path(), endpoint.path()).unwrap();
    while client.version().await.is_err() {
        tokio::task::yield_now().await;
    }
    fake.faults().fail(CallKind::ListContainers, Error::new(Kind::NotFound, "no such thing"));
    let error = soon(client.list_containers(None)).await.unwrap_err();
    assert_eq!(error, Error::new(Kind::NotFound, "no such thing"), "its own words");
}

#[tokio::test]
async fn disconnected_client_ends_its_call_at_the_runtime() {
    let fake = FakeRuntimeService::new();
    let gate = fake.faults().hold(CallKind::Version);
    let peer = Peer::new(fake).serve();
    let server = in_front_of(&peer.endpoint, Duration::ZERO);
    let client = RemoteRuntimeService::of(&server.endpoint, quick());
    let mut version: Pin<Box<_>> = Box::pin(client.version());
    tokio::select! {
        _ = &mut version => panic!("the call ended at a closed gate"),
        () = soon(gate.until_waiting(1)) => {}
    }
    drop(version);
    soon(gate.until_waiting(0)).await;
}

#[tokio::test]
async fn endless_stream_ends_with_the_server() {
    let peer = raw(tower::service_fn(|_: Request<Body>| async {
        let event = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 0])))]);
        let mut answer = Response::new(Body::new(StreamBody::new(event.chain(futures::stream::pending()))));
        answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        Ok::<_, Infallible>(answer)
    }));
    // The stream must end with the server, not after the grace, which is longer than the test.
    let server = in_front_of(&peer.endpoint, Duration::from_secs(600));
    let tasks = TaskTracker::new();
    let mut client = bare_client(&server.endpoint, &tasks).await;
    let events = call("runtime.v1.RuntimeService/GetContainerEvents", &[0, 0, 0, 0, 0]);
    let mut events = soon(client.send_request(events)).await.unwrap().into_body();
    assert_eq!(soon(events.frame()).await.unwrap().unwrap().into_data().unwrap().len(), 5);
    server.stop().await;
    let trailers = soon(events.frame()).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("restarting"), "{trailers:?}");
}
