//! TLS between a node and its API server: every connection of the node is noted with its client certificate, and whether it is still open.
//! Passes bytes on, over a connection of its own with the node's first certificate. Called by the test of renewed certificates.

use std::io;
use std::sync::Arc;

use base::lock::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::control_plane::ControlPlane;
use super::node::NODE;

/// A connection of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The client certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) is_open: bool,
}

/// The listener and its connections. Ends with the test.
pub(crate) struct TlsFront {
    url: String,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    /// Guards the connections so far, oldest first.
    connections: Mutex<Vec<Connection>>,
    acceptor: TlsAcceptor,
    to_server: ClientConfig,
    server: String,
}

impl TlsFront {
    /// Listens before this control plane, with the certificate of its API server.
    #[track_caller]
    pub(crate) fn start(plane: &ControlPlane) -> Self {
        let runtime = super::runtime();
        let (acceptor, to_server) = tls(plane);
        let server = plane.url().trim_start_matches("https://").to_owned();
        let shared = Arc::new(Shared { connections: Mutex::default(), acceptor, to_server, server });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("listen on loopback");
        let url = format!("https://{}", listener.local_addr().expect("it listens"));
        let accepting = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                tokio::spawn(async move { carry(client, &shared).await });
            }
        });
        Self { url, shared, runtime: Some(runtime) }
    }

    /// `https://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The connections so far, oldest first.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.shared.connections.lock().clone()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The two sides: a server that demands a client certificate, and the node as a client.
#[track_caller]
fn tls(plane: &ControlPlane) -> (TlsAcceptor, ClientConfig) {
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        let found = CertificateDer::pem_file_iter(plane.file(name)).expect("read a certificate");
        found.map(|certificate| certificate.expect("a certificate")).collect()
    };
    let key = |name: &str| PrivateKeyDer::from_pem_file(plane.file(name)).expect("read a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut authority = RootCertStore::empty();
    authority.add_parsable_certificates(certificates("ca.crt"));
    let authority = Arc::new(authority);
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authority), Arc::clone(&provider));
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_client_cert_verifier(clients.build().expect("an authority"))
        .with_single_cert(certificates("server.crt"), key("server.key"))
        .expect("a certificate and its key");
    server.alpn_protocols = ["h2", "http/1.1"].map(|name| name.as_bytes().to_vec()).into();
    let node = format!("system-node-{NODE}");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(authority)
        .with_client_auth_cert(certificates(&format!("{node}.crt")), key(&format!("{node}.key")))
        .expect("a certificate and its key");
    (TlsAcceptor::from(Arc::new(server)), client)
}

/// Carries a connection, in both directions, in the protocol that the node chose.
async fn carry(client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut client = shared.acceptor.accept(client).await?;
    let (_, session) = client.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first).map(|found| found.to_vec());
    let mut config = shared.to_server.clone();
    config.alpn_protocols = session.alpn_protocol().map(<[u8]>::to_vec).into_iter().collect();
    let server = TcpStream::connect(&shared.server).await?;
    let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
    let mut server = TlsConnector::from(Arc::new(config)).connect(name, server).await?;
    let index = {
        let mut connections = shared.connections.lock();
        connections.push(Connection { certificate: certificate.unwrap_or_default(), is_open: true });
        connections.len() - 1
    };
    let carried = copy_bidirectional(&mut client, &mut server).await;
    shared.connections.lock()[index].is_open = false;
    carried.map(drop)
}
