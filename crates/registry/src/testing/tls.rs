//! TLS for the test registry: an authority of our own, a certificate for `localhost`, `127.0.0.1` and `::1`, and a
//! client certificate; and one that signed itself. The keys are public, good for tests alone, and valid for a hundred years.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

const CA: &[u8] = include_bytes!("pem/ca.pem");
const SERVER: &[u8] = include_bytes!("pem/server.pem");
const SERVER_KEY: &[u8] = include_bytes!("pem/server.key.pem");
const SELF: &[u8] = include_bytes!("pem/self.pem");
const SELF_KEY: &[u8] = include_bytes!("pem/self.key.pem");
const SELF_FOR_SERVERS: &[u8] = include_bytes!("pem/self-for-servers.pem");
const SELF_FOR_CLIENTS: &[u8] = include_bytes!("pem/self-for-clients.pem");
const CLIENT: &[u8] = include_bytes!("pem/client.pem");
const CLIENT_KEY: &[u8] = include_bytes!("pem/client.key.pem");

/// The TLS of a test registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestTls {
    /// Plain HTTP.
    #[default]
    Off,
    /// TLS with the certificate of [`ca_pem`]'s authority.
    On,
    /// TLS with [`self_signed_pem`].
    SelfSigned,
    /// TLS as with `On`, and clients must show [`client_certificate_pem`].
    WithClientCertificate,
}

/// The authority that signed the registry's certificate and the client's.
#[must_use]
pub fn ca_pem() -> Vec<u8> {
    CA.to_vec()
}

/// A certificate as `openssl req -x509` makes it: it says that it is an authority, for `localhost`, `registry.example`,
/// `127.0.0.1` and `::1`.
#[must_use]
pub fn self_signed_pem() -> Vec<u8> {
    SELF.to_vec()
}

/// The same for `registry.example`, with an extended key usage: for servers, or for clients only.
#[must_use]
pub fn self_signed_for_pem(servers: bool) -> Vec<u8> {
    if servers { SELF_FOR_SERVERS.to_vec() } else { SELF_FOR_CLIENTS.to_vec() }
}

/// A client certificate that the registry accepts.
#[must_use]
pub fn client_certificate_pem() -> Vec<u8> {
    CLIENT.to_vec()
}

/// The key of [`client_certificate_pem`].
#[must_use]
pub fn client_key_pem() -> Vec<u8> {
    CLIENT_KEY.to_vec()
}

pub(super) fn server_config(tls: TestTls) -> Option<Arc<ServerConfig>> {
    if tls == TestTls::Off {
        return None;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = |pem: &[u8]| CertificateDer::from_pem_slice(pem).expect("our own PEM");
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring knows the usual versions");
    let builder = if tls == TestTls::WithClientCertificate {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(CA)).expect("our own authority");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
    } else {
        builder.with_no_client_auth()
    };
    let (shown, key) = if tls == TestTls::SelfSigned { (SELF, SELF_KEY) } else { (SERVER, SERVER_KEY) };
    let key = PrivateKeyDer::from_pem_slice(key).expect("our own PEM");
    let config = builder.with_single_cert(vec![certificate(shown)], key).expect("key and certificate fit");
    Some(Arc::new(config))
}
