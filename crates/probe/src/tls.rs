//! TLS: with every certificate accepted, as probes have it, because a container shows what nobody signed; or with the
//! system's authorities, for documents. Called by [`crate::exchange`].

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::sync::OnceCell;

/// Accepts whatever certificate is shown.
pub(crate) fn unchecked() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AcceptAll { provider: Arc::clone(&provider) });
        let builder = builder(provider).dangerous().with_custom_certificate_verifier(verifier);
        Arc::new(builder.with_no_client_auth())
    }))
}

/// Accepts what the system's authorities signed. They are read once.
pub(crate) async fn checked() -> Arc<ClientConfig> {
    static CONFIG: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();
    let load = || async {
        // The system's certificates are files.
        let roots = tokio::task::spawn_blocking(system_roots).await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot load system certificates");
            RootCertStore::empty()
        });
        trusting(roots)
    };
    Arc::clone(CONFIG.get_or_init(load).await)
}

/// Accepts what these signed.
pub(crate) fn trusting(roots: RootCertStore) -> Arc<ClientConfig> {
    let builder = builder(Arc::new(ring::default_provider())).with_root_certificates(roots);
    Arc::new(builder.with_no_client_auth())
}

fn system_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "cannot load a system certificate");
    }
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(loaded.certs);
    if ignored > 0 {
        tracing::debug!(ignored, "ignoring system certificates of unknown form");
    }
    roots
}

fn builder(provider: Arc<CryptoProvider>) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_details(provider, Arc::new(TimeOfDay))
        .with_safe_default_protocol_versions()
        .expect("ring knows the usual versions")
}

/// The time as rustls asks for it. Its own way panics where the clock shows a time before 1970.
#[derive(Debug)]
struct TimeOfDay;

impl TimeProvider for TimeOfDay {
    #[expect(clippy::disallowed_methods, reason = "certificates are looked at by the machine's own clock")]
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(since))
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
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
