//! The end of a server as its clients see it: running calls may finish, repeatable calls are repeated at the next server, and on
//! a socket that is passed on no client sees the change.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{ImageService as _, Kind, PullImageRequest};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use super::support::{Running, endpoint_in, quick, soon};
use crate::client::connect_image_service;
use crate::server::{Listener, ServerOptions, bind, inherited};

const NAME: &str = "registry.test/app:1";
const LONG: Duration = Duration::from_secs(600);

fn fake() -> FakeImageService {
    let fake = FakeImageService::new();
    fake.publish(NAME, &FakeImage::new("app"));
    fake
}

fn options(fake: &FakeImageService, grace: Duration) -> ServerOptions {
    ServerOptions { grace, ..ServerOptions::new(Arc::new(fake.clone()), "1.2.3") }
}

/// A socket that this process keeps, as systemd does.
struct Kept {
    socket: UnixListener,
    directory: TempDir,
}

impl Kept {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self { socket: UnixListener::bind(endpoint_in(&directory).path()).unwrap(), directory }
    }

    /// The socket as it is passed to a process.
    fn pass(&self) -> Listener {
        let endpoint = endpoint_in(&self.directory);
        inherited(Some(&endpoint), vec![self.socket.try_clone().unwrap()]).unwrap().unwrap()
    }
}

#[tokio::test]
async fn short_calls_are_answered_during_shutdown() {
    let fake = fake();
    let gate = fake.faults().hold(CallKind::PullImage);
    let server = Running::with(options(&fake, LONG));
    let client = server.client().await;
    let puller = client.clone();
    let pull = TaskTracker::new().spawn(async move { puller.pull_image(PullImageRequest::new(NAME)).await });
    soon(gate.until_waiting(1)).await;
    server.shutdown.cancel();
    for _ in 0..3 {
        soon(client.image_fs_info()).await.expect("on the connection that there is");
        soon(server.client().await.list_images(None)).await.expect("on a new one");
    }
    gate.open();
    soon(pull).await.unwrap().expect("it was let to end");
    server.stop().await;
}

#[tokio::test]
async fn slow_pull_is_retried_at_the_next_server() {
    let (old, new, kept) = (fake(), fake(), Kept::new());
    let gate = old.faults().hold(CallKind::PullImage);
    let server = Running::on(kept.pass(), options(&old, Duration::ZERO));
    let client = server.client_with(quick()).await;
    let pull = TaskTracker::new().spawn(async move { client.pull_image(PullImageRequest::new(NAME)).await });
    soon(gate.until_waiting(1)).await;
    server.stop().await;
    assert_eq!((gate.waiting(), old.abandoned_pulls()), (0, 1), "nothing outlives the server");
    let _next = Running::on(kept.pass(), options(&new, Duration::ZERO));
    soon(pull).await.unwrap().expect("the next server pulls");
    assert!(new.call_kinds().contains(&CallKind::PullImage));
}

/// A client of gRPC makes a call that was given back once more, and once only: it must know before that the connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_gets_goaway_before_its_pull_is_returned() {
    for _ in 0..20 {
        let fake = fake();
        let gate = fake.faults().hold(CallKind::PullImage);
        let server = Running::with(options(&fake, Duration::ZERO));
        let mut stream = UnixStream::connect(server.endpoint.path()).await.unwrap();
        // By hand, frame by frame: no client shows their order. A request without a body, whose headers are not compressed.
        let mut headers = Vec::new();
        let path = "/runtime.v1.ImageService/PullImage";
        for (name, value) in
            [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        {
            let length = |text: &str| u8::try_from(text.len()).unwrap();
            headers.extend([&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat());
        }
        let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        request.extend(frame(SETTINGS, 0, 0, &[]));
        request.extend(frame(HEADERS, 4, 1, &headers));
        request.extend(frame(DATA, 1, 1, &[0, 0, 0, 0, 0]));
        stream.write_all(&request).await.unwrap();
        soon(gate.until_waiting(1)).await;
        server.shutdown.cancel();
        let mut order = Vec::new();
        while !order.contains(&RST_STREAM) {
            let mut head = [0; 9];
            soon(stream.read_exact(&mut head)).await.unwrap();
            let mut payload = vec![0; (usize::from(head[1]) << 8) | usize::from(head[2])];
            soon(stream.read_exact(&mut payload)).await.unwrap();
            order.push(head[3]);
            if head[3] == RST_STREAM {
                assert_eq!(payload, u32::from(h2::Reason::REFUSED_STREAM).to_be_bytes());
            }
        }
        assert!(order.contains(&GOAWAY), "{order:?}");
        drop(stream);
        server.stop().await;
    }
}

/// Types of HTTP/2's frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test]
async fn pull_returned_without_a_client_is_unavailable() {
    let fake = fake();
    let gate = fake.faults().hold(CallKind::PullImage);
    let server = Running::with(options(&fake, Duration::ZERO));
    let client = server.client_with(quick()).await;
    let pull = TaskTracker::new().spawn(async move { client.pull_image(PullImageRequest::new(NAME)).await });
    soon(gate.until_waiting(1)).await;
    server.stop().await;
    let error = soon(pull).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    assert_eq!(gate.waiting(), 0, "nothing outlives the server");
}

#[tokio::test]
async fn kept_socket_is_taken_over() {
    let directory = TempDir::new().unwrap();
    let endpoint = endpoint_in(&directory);
    let listener = bind(&endpoint).unwrap();
    listener.remains().leave();
    Running::on(listener, options(&fake(), Duration::ZERO)).stop().await;
    let refused = std::os::unix::net::UnixStream::connect(endpoint.path()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let next = Running::on(bind(&endpoint).unwrap(), options(&fake(), Duration::ZERO));
    soon(next.client().await.image_fs_info()).await.unwrap();
    next.stop().await;
    assert!(!endpoint.path().exists(), "that was not asked for");
}

/// Many clients, each with a connection of its own and one that they share, and a server that restarts again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_while_servers_alternate() {
    let (fake, kept) = (fake(), Kept::new());
    let endpoint = endpoint_in(&kept.directory);
    let first = Running::on(kept.pass(), options(&fake, Duration::ZERO));
    let shared = first.client_with(quick()).await;
    let done = tokio_util::sync::CancellationToken::new();
    let tasks = TaskTracker::new();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (shared, endpoint, done) = (shared.clone(), endpoint.clone(), done.clone());
            tasks.spawn(async move {
                let mut calls = 0;
                while !done.is_cancelled() {
                    let own = connect_image_service(&endpoint, quick()).await.expect("a connection");
                    for client in [&shared, &own] {
                        client.pull_image(PullImageRequest::new(NAME)).await.expect("a pull");
                        client.list_images(None).await.expect("a list");
                    }
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut server = first;
    for _ in 0..20 {
        soon(server.stop()).await;
        server = Running::on(kept.pass(), options(&fake, Duration::ZERO));
        soon(server.client_with(quick()).await.image_fs_info()).await.unwrap();
    }
    done.cancel();
    for client in clients {
        assert!(soon(client).await.expect("no call failed") > 0);
    }
}
