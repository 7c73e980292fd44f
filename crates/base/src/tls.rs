//! Parts that our TLS clients share: the system's authorities, the time at which certificates are judged, and the verifier that
//! accepts every certificate. Does not decide which servers a client trusts: `registry` and `probe` do. With the feature `tls`.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The certificate authorities that the system trusts. Reads files: not for an async worker thread.
#[must_use]
pub fn system_roots() -> RootCertStore {
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

/// The time as rustls asks for it, by a clock. Its own way panics where the clock shows a time before 1970.
pub struct CertificateTime(pub Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl TimeProvider for CertificateTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = (self.0)().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(since))
    }
}

impl fmt::Debug for CertificateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateTime")
    }
}

/// Accepts every certificate, and still checks that the server holds its key.
#[derive(Debug)]
pub struct AnyCertificate(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_are_valid() {
        let time = CertificateTime(Arc::new(|| UNIX_EPOCH - Duration::from_secs(1 << 40)));
        assert_eq!(time.current_time(), Some(UnixTime::since_unix_epoch(Duration::ZERO)));
    }
}
