//! Requests to servers on loopback that answer byte by byte as scripted.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use registry::testing::{Options, TestRegistry, TestTls};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

/// Answers each connection with what `answer` makes of the head of its request; `None`: with nothing, for ever.
struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn new(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut serving) = (Arc::clone(&heads), JoinSet::new());
        serving.spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.expect("accepted");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        // What speaks TLS sends no lines.
                        Ok(0x16) | Err(_) => break,
                        Ok(byte) => head.push(byte),
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let answered = answer(&head);
                seen.lock().push(head);
                if let Some(bytes) = &answered {
                    // The client may have read enough and disconnected.
                    let _heard = stream.write_all(bytes.as_bytes()).await;
                }
                if answered.is_none_or(|text| text.contains("X-Hold")) {
                    held.push(stream);
                }
            }
        });
        Self { port, heads, _serving: serving }
    }

    async fn saying(answer: &'static str) -> Self {
        Self::new(move |_| Some(answer.to_owned())).await
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    fn get<'a>(&self, path: &'a str, headers: &'a [(&'a str, &'a str)]) -> HttpGet<'a> {
        HttpGet { tls: false, host: "127.0.0.1", port: self.port, path, headers, purpose: "probe", timeout: Some(LONG) }
    }
}

fn status(status: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
}

/// Returns a port without a listener.
async fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    listener.local_addr().expect("bound").port()
}

#[tokio::test]
async fn statuses_are_judged_as_by_the_kubelet() {
    let cases = [
        ("200 OK", ProbeOutcome::Success, "body"),
        ("204 No Content", ProbeOutcome::Success, ""),
        ("300 Many", ProbeOutcome::Warning, "Probe terminated redirects, Response body: body"),
        ("302 Found", ProbeOutcome::Warning, "Probe terminated redirects, Response body: body"),
        ("304 Not Modified", ProbeOutcome::Warning, "Probe terminated redirects, Response body: "),
        ("399 What", ProbeOutcome::Warning, "Probe terminated redirects, Response body: body"),
        ("400 Bad", ProbeOutcome::Failure, "HTTP probe failed with statuscode: 400"),
        ("500 Broken", ProbeOutcome::Failure, "HTTP probe failed with statuscode: 500"),
    ];
    for (line, outcome, text) in cases {
        let server = Server::new(move |_| Some(status(line, "", "body"))).await;
        let said = ask_http(&server.get("/", &[])).await;
        assert_eq!(said, ProbeReply { outcome, text: text.into() }, "{line}");
    }
}

#[tokio::test]
async fn headers_are_those_of_the_manifest() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let agent = concat!("User-Agent: imagelet-probe/", env!("CARGO_PKG_VERSION"));
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let named: &[(&str, &str)] = &[("Host", "web.example"), ("X-A", "1"), ("x-a", "ü"), ("Content-Length", "9")];
    let emptied: &[(&str, &str)] = &[("Accept", ""), ("User-Agent", "")];
    let own: &[(&str, &str)] = &[("accept", "text/plain"), ("user-agent", "me")];
    struct Case<'a> {
        path: &'a str,
        headers: &'a [(&'a str, &'a str)],
        wanted: &'a [&'a str],
        unwanted: &'a [&'a str],
    }
    let cases = [
        Case {
            path: "",
            headers: &[],
            wanted: &["GET / HTTP/1.1", agent, "Accept: */*", &host, "Connection: close"],
            unwanted: &["Accept-Encoding"],
        },
        Case {
            path: "a/../b c?q=%2F&r=\"#f",
            headers: named,
            wanted: &["GET /a/../b%20c?q=%2F&r=%22 HTTP/1.1", "Host: web.example", "X-A: 1", "X-A: ü"],
            unwanted: &["Content-Length"],
        },
        Case { path: "/", headers: emptied, wanted: &[], unwanted: &["Accept", "User-Agent"] },
        Case {
            path: "/",
            headers: own,
            wanted: &["Accept: text/plain", "User-Agent: me"],
            unwanted: &["*/*", "imagelet"],
        },
    ];
    for (index, Case { path, headers, wanted, unwanted }) in cases.into_iter().enumerate() {
        assert_eq!(ask_http(&server.get(path, headers)).await.outcome, ProbeOutcome::Success);
        let head = server.heads()[index].clone();
        for line in wanted {
            assert!(head.contains(&format!("{line}\r\n")), "{line} is not in {head}");
        }
        for line in unwanted {
            assert!(!head.contains(line), "{line} is in {head}");
        }
    }
    let said = ask_http(&server.get("/", &[("X-Bad", "a\u{1}b")])).await;
    assert!(said.text.ends_with("invalid header field value for \"X-Bad\""), "{}", said.text);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let server = Server::new(|head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        Some(match path.as_str() {
            "/near" => status("302 Found", "Location: /well?x=1\r\n", ""),
            "/far" => status("302 Found", "Location: http://elsewhere.example/\r\n", "there"),
            "/loop" => status("307 Again", "Location: /loop\r\n", ""),
            "/odd" => status("301 Odd", "Location: ftp://127.0.0.1/\r\n", ""),
            _ => status("200 OK", "X-Folded: a\r\n b\r\n", "well"),
        })
    })
    .await;
    assert_eq!(ask_http(&server.get("/near", &[("Host", "web.example")])).await, ProbeReply::success("well"));
    let heads = server.heads();
    assert!(heads[1].starts_with("GET /well?x=1 ") && heads[1].contains("Host: web.example\r\n"), "{}", heads[1]);
    let far = ask_http(&server.get("/far", &[])).await;
    assert_eq!((far.outcome, &*far.text), (ProbeOutcome::Warning, "Probe terminated redirects, Response body: there"));
    let url = |path: &str| format!("Get \"http://127.0.0.1:{}{path}\": ", server.port);
    let cases = [("/loop", "stopped after 10 redirects"), ("/odd", "unsupported protocol scheme \"ftp\"")];
    for (path, text) in cases {
        assert_eq!(ask_http(&server.get(path, &[])).await, ProbeReply::failure(format!("{}{text}", url(path))));
    }
}

#[tokio::test]
async fn what_does_not_answer_fails_within_the_limit_and_says_where() {
    let within = |server: &Server| HttpGet { timeout: Some(Duration::from_millis(200)), ..server.get("/", &[]) };
    let ending =
        |said: &ProbeReply, text: &str| assert!(said.text.ends_with(text), "{} does not end in {text}", said.text);

    let silent = Server::new(|_| None).await;
    let said = ask_http(&within(&silent)).await;
    ending(&said, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    let stuck = Server::saying("HTTP/1.1 200 OK\r\nX-Hold: 1\r\nContent-Length: 9\r\n\r\nhal").await;
    let said = ask_http(&within(&stuck)).await;
    ending(&said, "context deadline exceeded (Client.Timeout exceeded while reading body)");
    let short = Server::saying("").await;
    ending(&ask_http(&short.get("/", &[])).await, ": EOF");
    let garbage = Server::saying("SSH-2.0-what\r\n\r\n").await;
    assert_eq!(ask_http(&garbage.get("/", &[])).await.outcome, ProbeOutcome::Failure);

    let closed = free_port().await;
    let refused = HttpGet { port: closed, ..silent.get("/", &[]) };
    let want = format!("Get \"http://127.0.0.1:{closed}/\": dial tcp 127.0.0.1:{closed}: connect: connection refused");
    assert_eq!(ask_http(&refused).await, ProbeReply::failure(want));
}

#[tokio::test]
async fn no_more_of_a_body_is_read_than_is_shown() {
    let endless = Server::new(|_| {
        Some(format!("HTTP/1.1 200 OK\r\nX-Hold: 1\r\nContent-Length: 1000000000\r\n\r\n{}", "x".repeat(3 * MAX_BODY)))
    })
    .await;
    let said = ask_http(&endless.get("/", &[])).await;
    assert_eq!((said.outcome, said.text.len()), (ProbeOutcome::Success, MAX_BODY));
}

#[tokio::test]
async fn container_certificates_are_not_verified_and_plain_text_is_detected() {
    let secure = TestRegistry::start(Options { tls: TestTls::On, ..Options::default() }).await;
    let get = HttpGet {
        tls: true,
        host: "127.0.0.1",
        port: secure.addr().port(),
        path: "/v2/",
        headers: &[],
        purpose: "probe",
        timeout: Some(LONG),
    };
    assert_eq!(http_get(&get).await.expect("an answer").status, 200);
    let plain = Server::saying("HTTP/1.1 400 Bad\r\n\r\n\r\n\r\n").await;
    let error = http_get(&HttpGet { tls: true, ..plain.get("/", &[]) }).await.expect_err("no TLS");
    assert!(error.not_tls && error.text.ends_with("http: server gave HTTP response to HTTPS client"), "{error}");
}

#[tokio::test]
async fn a_port_is_asked_by_connecting() {
    let server = Server::saying("").await;
    assert_eq!(tcp("127.0.0.1", server.port, LONG).await, ProbeReply::success(""));
    let closed = free_port().await;
    let want = format!("dial tcp 127.0.0.1:{closed}: connect: connection refused");
    assert_eq!(tcp("127.0.0.1", closed, LONG).await, ProbeReply::failure(want));
    // A full queue accepts no connection.
    let full = tokio::net::TcpSocket::new_v4().expect("a socket");
    full.bind(([127, 0, 0, 1], 0).into()).expect("bound");
    let listener = full.listen(1).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    let mut waiting = Vec::new();
    let text = loop {
        assert!(waiting.len() < 64, "the queue is never full");
        let stream =
            tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(("127.0.0.1", port)));
        match stream.await {
            Ok(stream) => waiting.push(stream.expect("connected")),
            Err(_) => break tcp("127.0.0.1", port, Duration::from_millis(100)).await.text,
        }
    };
    assert_eq!(text, format!("dial tcp 127.0.0.1:{port}: i/o timeout"));
    assert_eq!(tcp("no.such.host.invalid", 1, LONG).await.outcome, ProbeOutcome::Failure);
}

/// How a health server answers.
#[derive(Clone, Copy)]
enum Health {
    Status(u8),
    Code(&'static str, &'static str),
    Http(u16),
    Nothing,
}

async fn health(answer: Health) -> (u16, Arc<Mutex<Vec<u8>>>, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (asked, mut serving) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    let seen = Arc::clone(&asked);
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        let mut connection = h2::server::handshake(stream).await.expect("h2");
        let mut kept = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let (seen, mut body) = (Arc::clone(&seen), request.into_body());
            if let Health::Nothing = answer {
                kept.push(respond);
                continue;
            }
            let grpc = http::Response::builder().header("content-type", "application/grpc");
            match answer {
                Health::Nothing => {}
                Health::Http(status) => {
                    let response = http::Response::builder().status(status).body(()).expect("made");
                    respond.send_response(response, true).expect("sent");
                }
                Health::Code(code, text) => {
                    let response =
                        grpc.header("grpc-status", code).header("grpc-message", text).body(()).expect("made");
                    respond.send_response(response, true).expect("sent");
                }
                Health::Status(status) => {
                    let mut stream = respond.send_response(grpc.body(()).expect("made"), false).expect("sent");
                    stream.send_data(bytes::Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false).expect("sent");
                    let trailers = http::HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        http::HeaderValue::from_static("0"),
                    )]);
                    stream.send_trailers(trailers).expect("sent");
                }
            }
            kept.push(respond);
            let mut readers = JoinSet::new();
            readers.spawn(async move {
                if let Some(Ok(data)) = body.data().await {
                    *seen.lock() = data.to_vec();
                }
            });
            readers.detach_all();
        }
    });
    (port, asked, serving)
}

#[tokio::test]
async fn health_is_asked_over_grpc() {
    let failed = |text: &str| ProbeReply::failure(text);
    let cases = [
        (Health::Status(1), ProbeReply::success("service healthy")),
        (Health::Status(2), failed("service unhealthy (responded with \"NOT_SERVING\")")),
        (Health::Status(0), failed("service unhealthy (responded with \"UNKNOWN\")")),
        (
            Health::Code("12", "unknown%20service"),
            failed(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service",
            ),
        ),
        (
            Health::Code("5", "unknown service"),
            failed("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
        ),
        (
            Health::Http(404),
            failed(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unexpected HTTP \
                 status code received from server: 404 Not Found",
            ),
        ),
        (Health::Code("4", ""), failed("timeout: health rpc did not complete within 20s")),
    ];
    for (answer, want) in cases {
        let (port, asked, _serving) = health(answer).await;
        assert_eq!(grpc("127.0.0.1", port, "web", LONG).await, want);
        if let Health::Status(1) = answer {
            assert_eq!(*asked.lock(), b"\0\0\0\0\x05\x0a\x03web");
        }
    }
    let (port, _, _serving) = health(Health::Nothing).await;
    let said = grpc("127.0.0.1", port, "", Duration::from_millis(300)).await;
    assert_eq!(said, failed("timeout: health rpc did not complete within 300ms"));
    let closed = free_port().await;
    let said = grpc("127.0.0.1", closed, "", Duration::from_millis(100)).await;
    let want = format!(
        "timeout: failed to connect service \"127.0.0.1:{closed}\" within 100ms: context deadline exceeded: dial tcp \
         127.0.0.1:{closed}: connect: connection refused"
    );
    assert_eq!(said, ProbeReply::failure(want));
    let other = Server::saying("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let said = grpc("127.0.0.1", other.port, "", LONG).await;
    assert!(said.text.starts_with("error: health rpc probe failed: rpc error: code = Unavailable"), "{}", said.text);
}

#[tokio::test]
async fn a_document_is_fetched_whole_or_not_at_all() {
    let server = Server::new(|head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        Some(match path.as_str() {
            "/pods?t=1" => status("200 OK", "", "kind: Pod"),
            "/moved" => status("302 Found", "Location: /pods?t=1\r\n", ""),
            "/loop" => status("302 Found", "Location: /loop\r\n", ""),
            "/big" => status("200 OK", "", "0123456789-"),
            _ => status("404 Not Found", "", "no"),
        })
    })
    .await;
    let base = format!("http://127.0.0.1:{}", server.port);
    let get = async |path: &str| {
        let url = format!("http://me:p%40ss@127.0.0.1:{}{path}", server.port);
        fetch(&url, &[("X-Key", "secret")], 10, LONG).await
    };
    assert_eq!(get("/moved").await.expect("fetched"), b"kind: Pod");
    for head in server.heads() {
        // me:p@ss
        assert!(head.contains("X-Key: secret\r\n") && head.contains("Authorization: Basic bWU6cEBzcw==\r\n"), "{head}");
    }
    let cases = [
        ("/big", format!("get {base}/big: more than 10 bytes")),
        ("/none?token=1", format!("get {base}/none: status 404")),
        ("/loop", format!("get {base}/loop: more than 10 redirects")),
    ];
    for (path, want) in cases {
        assert_eq!(get(path).await.expect_err("not fetched").to_string(), want);
    }
    let silent = Server::new(|_| None).await;
    let url = format!("http://127.0.0.1:{}/", silent.port);
    let error = fetch(&url, &[], 10, Duration::from_millis(100)).await.expect_err("nobody answers");
    assert_eq!(error.to_string(), format!("get {url}: no whole answer within 100ms"));
    let error = fetch("ftp://u:p@h/x?y", &[], 10, SECOND).await.expect_err("no URL of ours");
    assert!(!error.to_string().contains("u:p"), "{error}");
    let error = fetch("http://u:p@h:port/?y", &[], 10, SECOND).await.expect_err("no URL");
    assert!(!error.to_string().contains("u:p") && !error.to_string().contains("?y"), "{error}");
}

#[tokio::test]
async fn other_origins_see_no_headers_and_certificates_are_checked() {
    let other = Server::new(|_| Some(status("200 OK", "", "kind: Pod"))).await;
    let location = format!("Location: http://127.0.0.1:{}/\r\n", other.port);
    let first = Server::new(move |_| Some(status("302 Found", &location, ""))).await;
    let url = format!("http://u:p@127.0.0.1:{}/", first.port);
    assert_eq!(fetch(&url, &[("X-Key", "secret")], 10, LONG).await.expect("fetched"), b"kind: Pod");
    assert!(!other.heads()[0].contains("secret") && !other.heads()[0].contains("Authorization"), "{:?}", other.heads());

    let secure = TestRegistry::start(Options { tls: TestTls::On, ..Options::default() }).await;
    let url = format!("https://127.0.0.1:{}/v2/", secure.addr().port());
    let error = fetch(&url, &[], 99, LONG).await.expect_err("nobody knows its authority");
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut roots = RootCertStore::empty();
    let authority = registry::testing::ca_pem();
    roots.add(CertificateDer::from_pem_slice(&authority).expect("a certificate")).expect("added");
    fetch::fetch_trusting(tls::trusting(roots), &url, &[], 99, LONG).await.expect("fetched");
}

#[test]
fn durations_are_written_as_go_does() {
    let cases = [(0, "0s"), (100, "100ms"), (1000, "1s"), (1500, "1.5s"), (90_000, "1m30s"), (3_600_000, "1h0m0s")];
    for (millis, want) in cases {
        assert_eq!(shown(Duration::from_millis(millis)), want);
    }
}
