//! Hosts of which the scheme is not certain: a server that listens in TLS is detected by its first answer to plain
//! HTTP, or the other way round, and no credential is in a request that others on the path could read.

use std::io;
use std::sync::Arc;

use base::lock::Mutex;
use oci::{RegistryAuth, Secret};
use registry::testing::{Auth, ImageBuilder, Options, TestRegistry, TestTls, ca_pem};
use registry::{Client, ErrorKind, HostConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::support::{client_of, host, quick, reference};

/// Answers of servers that listen in TLS to plain HTTP: Go's, nginx' and an alert of TLS itself.
const ANSWERS: [&[u8]; 3] = [
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>",
    b"\x15\x03\x01\x00\x02\x02\x46",
];

/// A registry in TLS that answers plain HTTP as real ones do, and records the plain requests.
struct TlsServer {
    host: String,
    plain: Arc<Mutex<Vec<String>>>,
}

impl TlsServer {
    async fn before(registry: &TestRegistry, answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("it listens").to_string();
        let (plain, target) = (Arc::<Mutex<Vec<String>>>::default(), registry.addr());
        let notes = Arc::clone(&plain);
        let (tasks, tracker) = (TaskTracker::new(), TaskTracker::new());
        tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let notes = Arc::clone(&notes);
                tracker.spawn(async move { drop(carry(client, target, answer, &notes).await) });
            }
        });
        Self { host, plain }
    }

    fn config(&self) -> HostConfig {
        let mut config = host(&format!("http://{}/", self.host), true);
        config.either_scheme = true;
        config.tls.ca_pem.push(ca_pem());
        config
    }
}

async fn carry(
    mut client: TcpStream,
    target: std::net::SocketAddr,
    answer: &[u8],
    notes: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first).await?;
    if first == [0x16] {
        let mut server = TcpStream::connect(target).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && client.read_buf(&mut head).await? > 0 {}
    notes.lock().push(String::from_utf8_lossy(&head).to_ascii_lowercase());
    client.write_all(answer).await
}

async fn resolve(client: &Client, name: &str, auth: Option<RegistryAuth>) -> Result<(), registry::RegistryError> {
    let repository = client.repository(&reference(&format!("{name}/app:1")), auth).expect("hosts");
    repository.resolve().await.map(drop)
}

#[tokio::test]
async fn tls_server_is_detected_before_any_secret_is_sent() {
    let options = |auth: Option<Auth>| Options { tls: TestTls::On, auth };
    let token = RegistryAuth { registry_token: Secret::new("letmein"), ..RegistryAuth::default() };
    let basic = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let rows = [
        ("anonymous", None, None),
        ("with a password", Some(basic), Some(RegistryAuth::basic("ada", "swordfish"))),
        ("with a token of its own", None, Some(token)),
    ];
    for (what, wanted, credential) in rows {
        let registry = TestRegistry::start(options(wanted)).await;
        registry.push("app", "1", &ImageBuilder::tiny("a"));
        for answer in ANSWERS {
            let server = TlsServer::before(&registry, answer).await;
            let client = client_of(vec![server.config()], quick());
            resolve(&client, &server.host, credential.clone()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            let plain = std::mem::take(&mut *server.plain.lock());
            assert_eq!(plain.len(), 1, "{what}: one question, {plain:?}");
            assert!(!plain[0].contains("authorization") && !plain[0].contains("letmein"), "{what}: {plain:?}");
            // It is remembered.
            resolve(&client, &server.host, credential.clone()).await.expect(what);
            assert_eq!(*server.plain.lock(), Vec::<String>::new(), "{what}");
        }
    }
}

#[tokio::test]
async fn an_unknown_certificate_is_the_error_and_not_the_400() {
    let registry = TestRegistry::start(Options { tls: TestTls::On, ..Options::default() }).await;
    let server = TlsServer::before(&registry, ANSWERS[0]).await;
    let mut config = server.config();
    config.tls.ca_pem.clear();
    let error = resolve(&client_of(vec![config.clone()], quick()), &server.host, None).await.expect_err("unknown");
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("UnknownIssuer"), "{error}");
    // Where the scheme is certain, nothing else is tried.
    config.either_scheme = false;
    let error = resolve(&client_of(vec![config], quick()), &server.host, None).await.expect_err("400");
    assert!(error.to_string().contains("400 Bad Request"), "{error}");
}

#[tokio::test]
async fn plain_http_is_spoken_where_certificates_do_not_matter() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let mut config = host(&format!("https://{}/", registry.host()), true);
    config.tls.skip_verify = true;
    let error = resolve(&client_of(vec![config.clone()], quick()), &registry.host(), None).await.expect_err("no TLS");
    assert!(error.to_string().contains("plain HTTP"), "{error}");
    config.either_scheme = true;
    resolve(&client_of(vec![config], quick()), &registry.host(), None).await.expect("resolves");
}

/// A plain registry costs no request more.
#[tokio::test]
async fn plain_registry_gets_no_extra_requests() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let client = crate::support::client();
    resolve(&client, &registry.host(), None).await.expect("resolves");
    assert_eq!((registry.requests().len(), registry.connections()), (1, 1));
}
