//! Servers that do not speak as servers do: heads and bodies without end, and heads that drip. What is taken of them is bounded,
//! in bytes and in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use registry::{ErrorKind, RegistryError, RetryPolicy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::{client_of, host, quick, reference};

/// A server that answers every request with `head` and then `piece` again and again, with pauses.
struct Babbler {
    address: String,
    sent: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl Babbler {
    async fn start(head: &'static str, piece: &'static [u8], pause: Option<Duration>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let stop = CancellationToken::new();
        TaskTracker::new().spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                stream.set_nodelay(true).expect("a socket of our own");
                connections.spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(stream.read_u8().await.ok()?);
                    }
                    stream.write_all(head.as_bytes()).await.ok()?;
                    loop {
                        stream.write_all(piece).await.ok()?;
                        count.fetch_add(piece.len() as u64, Ordering::SeqCst);
                        if let Some(pause) = pause {
                            tokio::time::sleep(pause).await;
                        }
                    }
                    #[expect(unreachable_code, reason = "says what kind of block it is")]
                    Some(())
                });
            }
        }));
        Self { address, sent, _stop: stop.drop_guard() }
    }

    async fn resolve(&self, retry: RetryPolicy) -> RegistryError {
        let mut host = host(&format!("http://{}", self.address), true);
        host.dial_timeout = Duration::from_millis(300);
        let name = reference(&format!("{}/app:1", self.address));
        let session = client_of(vec![host], retry).repository(&name, None).expect("hosts");
        let resolve = session.resolve();
        tokio::time::timeout(Duration::from_secs(20), resolve).await.expect("in time").expect_err("no manifest")
    }
}

fn once() -> RetryPolicy {
    RetryPolicy { attempts: 1, idle_timeout: Duration::from_millis(600), ..quick() }
}

/// The most bytes that the buffers of a loopback connection hold.
const BUFFERS: u64 = 12 << 20;

#[tokio::test]
async fn endless_headers_are_cut_off() {
    // One header that does not end, and headers without end.
    let long = ("HTTP/1.1 200 OK\r\nx-long: ", &[b'x'; 4096] as &'static [u8]);
    let many = ("HTTP/1.1 200 OK\r\n", &b"x-many: of them\r\n"[..]);
    for (head, piece) in [long, many] {
        let server = Babbler::start(head, piece, None).await;
        let error = server.resolve(once()).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("transfer interrupted"), "{error}");
        assert!(server.sent.load(Ordering::SeqCst) < BUFFERS, "{} bytes", server.sent.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn endless_bodies_are_cut_off() {
    let endless =
        b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
    for (head, kind, want) in [
        ("HTTP/1.1 500 Oh\r\n\r\n", ErrorKind::Unavailable, "500 Internal Server Error (yyyy"),
        ("HTTP/1.1 404 Gone\r\ncontent-type: application/json\r\n\r\n", ErrorKind::NotFound, "404 Not Found (yyyy"),
        ("HTTP/1.1 200 OK\r\n\r\n", ErrorKind::InvalidContent, "larger than the 4194304 bytes that are allowed"),
    ] {
        let server = Babbler::start(head, endless, None).await;
        let error = server.resolve(once()).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(want), "{error}");
        assert!(error.to_string().len() < 400, "{error}");
        assert!(server.sent.load(Ordering::SeqCst) < BUFFERS + (4 << 20));
    }
}

#[tokio::test(start_paused = true)]
async fn dripping_transfer_is_abandoned() {
    let pause = Some(Duration::from_millis(100));
    // Something comes all the time.
    let heads = [
        ("HTTP/1.1 200 OK\r\nx: ", "no answer within 0.9 s (waiting for the answer)"),
        ("HTTP/1.1 200 OK\r\n\r\n", "no answer within 2.4 s (reading the answer)"),
    ];
    for (head, want) in heads {
        let server = Babbler::start(head, b"z", pause).await;
        let error = server.resolve(once()).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(want), "{error}");
    }
    // The body of an error is not worth so long a wait.
    let server = Babbler::start("HTTP/1.1 403 No\r\n\r\n", b"z", pause).await;
    let error = server.resolve(once()).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
