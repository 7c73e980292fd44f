//! Answers as no honest server writes them, byte by byte: two lengths, chunks without end, unsolicited answers, another
//! protocol, an encoding that was not asked for. The client returns an error in time, or the right bytes.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use oci::{Descriptor, Digest};
use registry::{ErrorKind, Repository, RetryPolicy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::{client_of, fetch, host, noise, quick, reference};

/// The answer to one request: the first bytes, and then others until the client goes away.
#[derive(Clone, Default)]
struct Script {
    first: Vec<u8>,
    again: Vec<u8>,
    /// True if the connection is closed after the first bytes.
    closes: bool,
}

fn say(first: impl AsRef<[u8]>) -> Script {
    Script { first: first.as_ref().to_vec(), ..Script::default() }
}

/// A server that answers the first request with the first script, and so on; the last one is for all others.
struct Wire {
    address: String,
    /// Heads of the requests.
    asked: Arc<Mutex<Vec<String>>>,
    _stop: DropGuard,
}

impl Wire {
    async fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        let stop = CancellationToken::new();
        TaskTracker::new().spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (scripts, log) = (scripts.clone(), Arc::clone(&log));
                connections.spawn(async move {
                    loop {
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            head.push(stream.read_u8().await.ok()?);
                        }
                        let turn = {
                            let mut log = log.lock();
                            log.push(String::from_utf8_lossy(&head).into_owned());
                            log.len() - 1
                        };
                        let script = scripts.get(turn).or(scripts.last())?;
                        stream.write_all(&script.first).await.ok()?;
                        while !script.again.is_empty() {
                            stream.write_all(&script.again).await.ok()?;
                        }
                        if script.closes {
                            return Some(());
                        }
                    }
                });
            }
        }));
        Self { address, asked, _stop: stop.drop_guard() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn session(&self, attempts: u32) -> Repository {
        let mut host = host(&format!("http://{}", self.address), true);
        host.dial_timeout = Duration::from_millis(300);
        let retry = RetryPolicy { attempts, idle_timeout: Duration::from_millis(600), ..quick() };
        client_of(vec![host], retry).repository(&reference(&format!("{}/app:1", self.address)), None).expect("hosts")
    }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn malformed_responses_are_refused() {
    let endless = |head: &str, again: &str| Script { again: again.into(), ..say(head) };
    let ok = |rest: &str| say(format!("HTTP/1.1 200 OK\r\n{rest}\r\n\r\n{{}}"));
    let cases = [
        ("no HTTP", say("SSH-2.0-OpenSSH_9.2\r\n\r\n")),
        ("HTTP/2 without having been asked", say(b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\x0d")),
        ("an older protocol", say("HTTP/0.9 200 OK\r\n\r\n{}")),
        ("two lengths", ok("content-length: 2\r\ncontent-length: 3")),
        ("two lengths in one", ok("content-length: 2, 3")),
        ("a negative length", ok("content-length: -2")),
        ("a length beyond all numbers", ok("content-length: 99999999999999999999999")),
        ("a length with a sign", ok("content-length: +2")),
        ("a way of transfer that is unknown", say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\nxyz")),
        ("a chunk that is no number", say(format!("{CHUNKED}xyz\r\n{{}}\r\n0\r\n\r\n"))),
        ("a chunk beyond all numbers", say(format!("{CHUNKED}fffffffffffffffff\r\n{{}}\r\n0\r\n\r\n"))),
        ("a chunk without its end", say(format!("{CHUNKED}2\r\n{{}}xx\r\n0\r\n\r\n"))),
        ("a chunk's extension without end", endless(&format!("{CHUNKED}2;"), "extension-")),
        ("trailers without end", endless(&format!("{CHUNKED}2\r\n{{}}\r\n0\r\n"), "x-trailer: of many\r\n")),
        ("a trailer without end", endless(&format!("{CHUNKED}2\r\n{{}}\r\n0\r\nx-trailer: "), "of-many-")),
        ("answers before the answer, without end", endless("", "HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n")),
        ("another protocol is agreed on", say("HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n")),
        ("a status that is none", say("HTTP/1.1 99999 Oh\r\n\r\n")),
        ("a head with a zero byte", say(b"HTTP/1.1 200 OK\r\nx: \0\r\n\r\n{}")),
        ("a redirect that is none", say("HTTP/1.1 304 Not Modified\r\n\r\n")),
    ];
    for (name, script) in cases {
        let server = Wire::start(vec![Script { closes: script.again.is_empty(), ..script }]).await;
        let session = server.session(2);
        let resolved = tokio::time::timeout(Duration::from_secs(20), session.resolve()).await.expect(name);
        match resolved {
            // The end of a chunked answer that is whole is of no interest.
            Ok(fetched) => assert_eq!((&fetched.bytes[..], name.contains("trailer")), (&b"{}"[..], true), "{name}"),
            Err(error) => {
                let content = error.kind() == ErrorKind::InvalidContent && name == "a way of transfer that is unknown";
                assert!(content || error.kind() == ErrorKind::Unavailable, "{name}: {error}");
                assert!(error.to_string().len() < 400, "{name}: {error}");
            }
        }
        assert!(server.asked().len() <= 2, "{name}: {:?}", server.asked());
    }
}

#[tokio::test]
async fn unsolicited_response_is_discarded() {
    let answer = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let good = r#"{"good":1}"#;
    let server = Wire::start(vec![say(answer(good) + &answer(r#"{"smuggled":1}"#)), say(answer(good))]).await;
    let session = server.session(3);
    for _ in 0..3 {
        assert_eq!(session.resolve().await.expect("resolves").bytes, good);
    }
    assert_eq!(server.asked().len(), 3, "each was asked for");
}

#[tokio::test]
async fn no_cookie_is_taken() {
    let cookie = "set-cookie: session=from-the-registry; path=/\r\n";
    let location = format!("HTTP/1.1 307 Go\r\n{cookie}location: /v2/app/manifests/2\r\ncontent-length: 0\r\n\r\n");
    let answer = format!("HTTP/1.1 200 OK\r\n{cookie}content-length: 2\r\n\r\n{{}}");
    let server = Wire::start(vec![say(location), say(answer)]).await;
    let session = server.session(1);
    for _ in 0..2 {
        session.resolve().await.expect("resolves");
    }
    let asked = server.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(!asked.concat().to_ascii_lowercase().contains("cookie"), "{asked:?}");
}

#[tokio::test]
async fn content_encoding_is_not_decoded() {
    // The client does not inspect the content.
    let (plain, packed) = (noise(20_000), noise(5_000));
    let blob = |bytes: &[u8]| Descriptor::new("application/octet-stream", Digest::sha256(bytes), bytes.len() as u64);
    let answer = |length: bool, body: &[u8]| {
        let length = if length { format!("content-length: {}\r\n", body.len()) } else { String::new() };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n{length}connection: close\r\n\r\n");
        Script { closes: true, ..say([head.as_bytes(), body].concat()) }
    };
    // A store that calls a compressed layer an encoded one: the bytes are what the digest is of.
    for length in [true, false] {
        let server = Wire::start(vec![answer(length, &packed)]).await;
        let session = server.session(1);
        assert_eq!(fetch(&session, &blob(&packed)).await.expect("comes"), packed);
        assert_eq!(session.blob_bytes(&blob(&packed), 1 << 20).await.expect("comes"), packed);
        assert!(server.asked()[0].to_ascii_lowercase().contains("accept-encoding: identity\r\n"));
    }
    // One that packs what was not to be packed: other bytes, which are not unpacked in good faith.
    for (length, kind) in [(true, ErrorKind::InvalidContent), (false, ErrorKind::Unavailable)] {
        let server = Wire::start(vec![answer(length, &packed)]).await;
        let error = server.session(1).blob_bytes(&blob(&plain), 1 << 20).await.expect_err("other bytes");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn unrequested_range_is_refused() {
    let whole = vec![b'x'; 3000];
    let blob = Descriptor::new("application/octet-stream", Digest::sha256(&whole), whole.len() as u64);
    let part = |range: &str| {
        let head = format!("HTTP/1.1 206 Partial Content\r\n{range}content-length: 1000\r\n\r\n");
        say([head.as_bytes(), &whole[..1000]].concat())
    };
    for range in ["", "content-range: bytes 1000-1999/3000\r\n", "content-range: bytes 0-999/1000\r\n"] {
        let server = Wire::start(vec![part(range)]).await;
        let error = fetch(&server.session(3), &blob).await.expect_err("no such range");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{range}: {error}");
        assert!(error.to_string().contains("wrong range: asked from byte 0 of 3000"), "{range}: {error}");
        assert_eq!(server.asked().len(), 3, "{range}");
    }
    // Less than was asked for: the rest is asked for as well.
    let first = part("content-range: bytes 0-999/3000\r\n");
    let rest = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 1000-2999/3000\r\ncontent-length: 2000\r\n\r\n";
    let server = Wire::start(vec![first, say([rest.as_bytes(), &whole[1000..]].concat())]).await;
    assert!(fetch(&server.session(2), &blob).await.expect("comes") == whole);
    assert!(server.asked()[1].contains("bytes=1000-"), "{:?}", server.asked());
}

#[tokio::test(start_paused = true)]
async fn retry_after_dates_are_parsed() {
    let limited = |after: &str| {
        let head = "HTTP/1.1 429 Slow\r\ndate: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: ";
        say(format!("{head}{after}\r\ncontent-length: 0\r\n\r\n"))
    };
    let ok = say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let server = Wire::start(vec![limited("Wed, 21 Oct 2015 07:28:02 GMT"), ok]).await;
    let started = tokio::time::Instant::now();
    server.session(2).resolve().await.expect("resolves");
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    // An answer without a date of its own counts from its receipt, by this machine's clock.
    let undated = |after: &str| say(format!("HTTP/1.1 429 Slow\r\nretry-after: {after}\r\ncontent-length: 0\r\n\r\n"));
    let server = Wire::start(vec![undated("Wed, 21 Oct 2015 08:28:00 GMT")]).await;
    let received = httpdate::parse_http_date("Wed, 21 Oct 2015 07:58:00 GMT").expect("a date");
    let namespace = registry::Namespace { hosts: vec![host(&format!("http://{}", server.address), true)] };
    let options = registry::Options::new(Arc::new(move |_: &str| Ok(namespace.clone())));
    let client = registry::Client::new(registry::Options { wall_clock: Arc::new(move || received), ..options });
    let session = client.repository(&reference("r.example/app:1"), None).expect("hosts");
    let error = session.resolve().await.expect_err("too long");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1800)), "{error}");
    // Too far away: it is said for how long.
    for (after, seconds) in [("Wed, 21 Oct 2015 08:28:00 GMT", 3600), ("18446744073709551615", u32::MAX.into())] {
        let server = Wire::start(vec![limited(after)]).await;
        let error = server.session(2).resolve().await.expect_err("too long");
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::RateLimited, Some(Duration::from_secs(seconds))));
        assert_eq!(server.asked().len(), 1);
    }
}
