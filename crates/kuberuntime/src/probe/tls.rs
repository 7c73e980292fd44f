//! TLS: with every certificate accepted, as in the kubelet's probes, because containers show certificates that no
//! authority signed; or with the system's authorities, for documents. Called by [`super::exchange`].

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use base::tls::{AnyCertificate, CertificateTime, system_roots};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

/// Accepts whatever certificate is shown.
pub(crate) fn unchecked() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
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

fn builder(provider: Arc<CryptoProvider>) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    #[expect(clippy::disallowed_methods, reason = "certificates are judged by the machine's own clock")]
    let time = CertificateTime(Arc::new(SystemTime::now));
    ClientConfig::builder_with_details(provider, Arc::new(time))
        .with_safe_default_protocol_versions()
        .expect("ring knows the usual versions")
}
