//! TLS client configurations: the ring provider named explicitly (no process-wide default), the system's roots beside
//! the host's own, client certificates, and the verifier that accepts everything where a host is configured so.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::namespace::TlsConfig;

/// The certificate authorities that the system trusts. Reads files: not for an async worker thread.
pub(crate) fn system_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "a system certificate could not be loaded");
    }
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(loaded.certs);
    if ignored > 0 {
        tracing::debug!(ignored, "system certificates that are not understood");
    }
    roots
}

/// Whether chain and key can be used together.
///
/// # Errors
/// What is wrong, as a text.
pub(crate) fn check_identity(chain_pem: &[u8], key_pem: &[u8]) -> Result<(), String> {
    identity(chain_pem, key_pem, &ring::default_provider()).map(|_| ())
}

fn identity(chain_pem: &[u8], key_pem: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("not a PEM certificate: {e}"))?;
    if chain.is_empty() {
        return Err("has no PEM certificate".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| "has no PEM private key".to_owned())?;
    CertifiedKey::from_der(chain, key, provider).map_err(|e| format!("certificate and key cannot be used: {e}"))
}

/// The configuration for a host. `with_identity` is false for origins that the host merely redirects to: they are
/// verified the same way and see no client certificate.
///
/// # Errors
/// What is wrong, as a text.
pub(crate) fn client_config(
    tls: &TlsConfig,
    system: &RootCertStore,
    with_identity: bool,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if tls.skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll { provider: Arc::clone(&provider) }))
    } else {
        let mut roots = system.clone();
        for pem in &tls.ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| format!("not a PEM certificate: {e}"))?;
                roots.add(certificate).map_err(|e| format!("certificate authority cannot be used: {e}"))?;
            }
        }
        builder.with_root_certificates(roots)
    };
    let mut config = if with_identity && !tls.client_identity_pem.is_empty() {
        let keys = tls
            .client_identity_pem
            .iter()
            .map(|(chain, key)| identity(chain, key, &provider).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        builder.with_client_cert_resolver(Arc::new(Identities(keys)))
    } else {
        builder.with_no_client_auth()
    };
    // HTTP/1.1 throughout: each blob has a connection of its own, and the first one is already open from the manifest.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The first client certificate whose key can sign as the server wants.
#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identities {
    fn resolve(&self, _root_hint_subjects: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.iter().find(|key| key.key.choose_scheme(schemes).is_some()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Accepts every certificate, and still checks that the server holds its key.
#[derive(Debug)]
struct AcceptAll {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
