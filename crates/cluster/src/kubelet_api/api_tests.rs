//! The kubelet's port over real connections, with an authority that counts the questions that it is asked.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cri_api::testing::FakeRuntimeService;
use oci::Secret;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::kubelet_api::certificate::ServerKey;
use crate::kubelet_api::route::tests::{ROUTES, spellings};

/// More idle connections than all budgets together.
const FLOOD: usize = 600;
const PATIENCE: Duration = Duration::from_secs(30);

/// Knows the tokens `reader` and `admin`. A reader may get, an admin may do everything.
#[derive(Default)]
struct Counting {
    tokens: AtomicUsize,
    accesses: AtomicUsize,
}

#[async_trait]
impl Authority for Counting {
    async fn review_token(&self, token: &Secret) -> Result<Option<Identity>, AuthorityError> {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        let known = ["reader", "admin"].contains(&token.expose());
        Ok(known.then(|| Identity { name: token.expose().to_owned(), ..Identity::default() }))
    }

    async fn review_access(&self, identity: &Identity, access: Access) -> Result<bool, AuthorityError> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        Ok(identity.name == "admin" || access.verb == "get")
    }
}

/// A port that answers.
struct Rig {
    address: SocketAddr,
    authority: Arc<Counting>,
    runtime: FakeRuntimeService,
    /// Of a client without a certificate, and of one with it.
    configs: [Arc<ClientConfig>; 2],
    stop: CancellationToken,
    tasks: TaskTracker,
    _directory: tempfile::TempDir,
}

impl Rig {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let names = |node: &str| ServerNames { node: node.to_owned(), addresses: vec![local] };
        let (client, text) = certificate::make(&names("admin"), ExtendedKeyUsagePurpose::ClientAuth, Timestamp::now())
            .expect("a client certificate");
        std::fs::write(path.join("ca.pem"), text).expect("written");
        let authority = Arc::new(Counting::default());
        let runtime = FakeRuntimeService::new();
        let serving = ServingCertificate::Own { directory: path.to_owned(), names: names("edge") };
        let parts = Parts {
            tls: TlsFiles { serving, client_ca_file: Some(path.join("ca.pem")) },
            node: "edge".to_owned(),
            authority: Arc::clone(&authority) as _,
            runtime: Arc::new(runtime.clone()),
            pods: Arc::new(|| json!({"items": []})),
            healthy: Arc::new(|| Ok(())),
            configuration: Arc::new(|| json!({})),
            metrics: Arc::new(String::new),
        };
        let api = KubeletApi::listen(&[SocketAddr::new(local, 0)], parts).await.expect("it listens");
        let address = api.address();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let until = stop.clone();
        tasks.spawn(async move { api.run(&until).await });
        let served = std::fs::read(path.join("kubelet-server.pem")).expect("its certificate");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&served).expect("PEM")).expect("a root");
        let configs = client_configs(roots, client);
        Self { address, authority, runtime, configs, stop, tasks, _directory: directory }
    }

    /// The numbers of questions about tokens and accesses.
    fn asked(&self) -> (usize, usize) {
        (self.authority.tokens.load(Ordering::Relaxed), self.authority.accesses.load(Ordering::Relaxed))
    }

    /// A TLS connection, which shows a client certificate if it is to.
    async fn connect(&self, certified: bool) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connect");
        let name = ServerName::IpAddress(self.address.ip().into());
        TlsConnector::from(Arc::clone(&self.configs[usize::from(certified)])).connect(name, stream).await.expect("TLS")
    }

    /// The status of a request with this token on a connection of its own, which the port closes.
    async fn status(&self, method: &str, path: &str, token: &str) -> u16 {
        let mut stream = self.connect(false).await;
        send(&mut stream, method, path, token).await;
        let mut text = Vec::new();
        // A client that is cut off has read the answer all the same.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("it is closed");
        status_in(&text)
    }

    /// Opens many idle connections from several addresses.
    async fn flood(&self) -> Vec<TcpStream> {
        let mut idle = Vec::new();
        for number in 0..FLOOD {
            let socket = TcpSocket::new_v4().expect("a socket");
            let from = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number % 8).expect("small"));
            socket.bind(SocketAddr::new(IpAddr::V4(from), 0)).expect("bound");
            idle.push(socket.connect(self.address).await.expect("connect"));
        }
        idle
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn client_configs(roots: RootCertStore, client: ServerKey) -> [Arc<ClientConfig>; 2] {
    let builder = || {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots.clone())
    };
    let certified = builder().with_client_auth_cert(vec![client.certificate], client.key).expect("a key");
    [Arc::new(builder().with_no_client_auth()), Arc::new(certified)]
}

async fn send(stream: &mut TlsStream<TcpStream>, method: &str, path: &str, token: &str) {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let upgrade = if path.contains("xec") || path.contains("ttach") || path.contains("orward") { upgrade } else { "" };
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\n{bearer}{upgrade}\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
}

/// Sends a request on a connection that stays, and reads its short answer.
async fn ask(stream: &mut TlsStream<TcpStream>, path: &str, token: &str) -> u16 {
    send(stream, "GET", path, token).await;
    let mut answer = vec![0; 4096];
    let length = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.expect("in time").expect("an answer");
    status_in(&answer[..length])
}

fn status_in(answer: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {text:?}"))
}

#[tokio::test]
async fn other_spellings_are_not_found_and_nothing_is_asked_about_them() {
    let rig = Rig::start().await;
    let mut tried = 0;
    for (method, path, ..) in
        ROUTES.iter().filter(|(method, path, ..)| *method == "POST" || !path.starts_with("/healthz/"))
    {
        for spelling in spellings(path) {
            let status = rig.status(method, &spelling, "admin").await;
            // Without a slash at its start a path may be no target of a request at all.
            let want: &[u16] = if spelling.starts_with('/') { &[404] } else { &[404, 400] };
            assert!(want.contains(&status), "{method} {spelling}: {status}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
    assert_eq!(rig.asked(), (0, 0), "of {tried} spellings");
    assert_eq!(rig.runtime.calls(), Vec::new());
    rig.end().await;
}

#[tokio::test]
async fn a_reader_enters_no_container_by_any_spelling() {
    let rig = Rig::start().await;
    for (method, path, ..) in ROUTES.iter().filter(|(_, _, access, _)| access.contains("create")) {
        assert_eq!(rig.status(method, path, "reader").await, 403, "{method} {path}");
        assert_eq!(rig.status(method, &format!("/{path}"), "reader").await, 404, "{method} /{path}");
    }
    assert_eq!(rig.runtime.calls(), Vec::new());
    assert_eq!(rig.asked(), (1, 1), "the answers are kept");
    // The same for those who may: the pod is looked for.
    let mut stream = rig.connect(false).await;
    assert_eq!(ask(&mut stream, "/exec/n/p/c", "admin").await, 404);
    assert_eq!(rig.asked(), (2, 2));
    rig.end().await;
}

#[tokio::test]
async fn connections_end_after_a_refusal_and_go_on_after_an_answer() {
    let rig = Rig::start().await;
    assert_eq!(rig.status("GET", "/pods", "").await, 401);
    assert_eq!(rig.status("GET", "/pods", "stranger").await, 401);
    assert_eq!(rig.status("POST", "/run/n/p/c", "reader").await, 403);
    let mut stream = rig.connect(false).await;
    for _ in 0..3 {
        assert_eq!(ask(&mut stream, "/pods", "reader").await, 200);
        assert_eq!(ask(&mut stream, "/unknown", "reader").await, 404);
    }
    rig.end().await;
}

#[tokio::test]
async fn idle_strangers_do_not_keep_clients_out() {
    let rig = Rig::start().await;
    // One has shown a certificate and asked nothing yet, one a token.
    let mut certified = rig.connect(true).await;
    let mut known = rig.connect(false).await;
    assert_eq!(ask(&mut known, "/healthz", "reader").await, 200);

    let mut idle = rig.flood().await;
    let mut byte = [0];
    let oldest = tokio::time::timeout(PATIENCE, idle[0].read(&mut byte)).await.expect("the oldest is evicted");
    assert!(matches!(oldest, Ok(0) | Err(_)), "{oldest:?}");
    // The youngest is open.
    let youngest = idle.last().expect("many").try_read(&mut byte);
    assert_eq!(youngest.expect_err("nothing is sent").kind(), io::ErrorKind::WouldBlock);

    let mut newcomer = rig.connect(false).await;
    assert_eq!(ask(&mut newcomer, "/pods", "reader").await, 200);
    assert_eq!(ask(&mut known, "/pods", "reader").await, 200);
    assert_eq!(ask(&mut certified, "/pods", "").await, 200);
    drop(idle);
    rig.end().await;
}
