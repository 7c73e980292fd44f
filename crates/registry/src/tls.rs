//! TLS client configurations: the ring provider named explicitly (no process-wide default), the system's roots in
//! addition to the host's own, client certificates, the verifier that also takes a configured certificate as the
//! server's own, and no verification where a host is configured so.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::tls::{AnyCertificate, CertificateTime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::extended_key_usage::is_for_servers;
use crate::namespace::TlsConfig;

/// The clock by which certificates are judged.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The clock of the machine.
#[must_use]
pub fn system_clock() -> WallClock {
    #[expect(clippy::disallowed_methods, reason = "the default of an option; callers may pass another clock")]
    Arc::new(SystemTime::now)
}

/// Returns words for a certificate that is not valid at this time by this machine's clock, which starts in 1970 where
/// nothing has set it.
pub(crate) fn clock_mismatch(error: &rustls::Error) -> Option<String> {
    let rustls::Error::InvalidCertificate(why) = error else { return None };
    let (what, limit, now) = match why {
        CertificateError::NotValidYetContext { time, not_before } => ("is not valid before", not_before, time),
        CertificateError::ExpiredContext { time, not_after } => ("was valid until", not_after, time),
        _ => return None,
    };
    let (limit, now) = (date(*limit), date(*now));
    Some(format!(
        "the server's certificate {what} {limit}, and the clock of this machine, which may be wrong, shows {now}"
    ))
}

/// As in HTTP's headers, which end with the year 9999.
fn date(time: UnixTime) -> String {
    const LAST: u64 = 253_402_300_799;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs().min(LAST)))
}

/// Checks that chain and key can be used together.
///
/// # Errors
/// The fault, as a text.
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
/// The fault, as a text.
pub(crate) fn client_config(
    tls: &TlsConfig,
    system: &RootCertStore,
    with_identity: bool,
    clock: &WallClock,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(CertificateTime(Arc::clone(clock))))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
    let builder = if tls.skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(&provider))))
    } else {
        let mut roots = system.clone();
        let mut given = Vec::new();
        for pem in &tls.ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| format!("not a PEM certificate: {e}"))?;
                let added = roots.add(certificate.clone());
                added.map_err(|e| format!("certificate authority cannot be used: {e}"))?;
                given.push(certificate.into_owned());
            }
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        match inner {
            Ok(inner) if !given.is_empty() => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(OrConfiguredCertificate { inner, given }))
            }
            Ok(inner) => builder.with_webpki_verifier(inner),
            // No authority is trusted, so that every handshake fails.
            Err(_) => builder.with_root_certificates(RootCertStore::empty()),
        }
    };
    let mut config = if with_identity && !tls.client_identity_pem.is_empty() {
        let keys = tls
            .client_identity_pem
            .iter()
            .map(|(chain, key)| identity(chain, key, &provider).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        builder.with_client_cert_resolver(Arc::new(ClientCertificates(keys)))
    } else {
        builder.with_no_client_auth()
    };
    // HTTP/1.1 throughout: each blob has a connection of its own, and the first one is already open from the manifest.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The first client certificate whose key can sign as the server wants.
#[derive(Debug)]
struct ClientCertificates(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientCertificates {
    fn resolve(&self, _root_hint_subjects: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.iter().find(|key| key.key.choose_scheme(schemes).is_some()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Accepts the usual chains. In addition, accepts a server that shows one of the given certificates itself, although
/// that certificate is marked as an authority: `openssl req -x509` makes such certificates, and Go's verifier takes
/// them. The owner of its key could as well sign a server's certificate with it, so this trusts no party that is not
/// trusted already. Name, time and permitted uses of the key are checked.
#[derive(Debug)]
struct OrConfiguredCertificate {
    inner: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

/// Returns true if an authority's certificate was shown as a server's and nothing else was found wrong before. Times
/// are checked first.
fn is_authority_as_server(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(source))) = error else { return false };
    matches!(source.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for OrConfiguredCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_authority_as_server(&error) && self.given.contains(end_entity) => {
                // The check that would have been next.
                if !is_for_servers(end_entity) {
                    return Err(CertificateError::InvalidPurpose.into());
                }
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{ca_pem, self_signed_for_pem, self_signed_pem};

    fn certificate(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).expect("our own PEM")
    }

    fn verifier(given: &[u8]) -> OrConfiguredCertificate {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(given)).expect("our own certificate");
        let provider = Arc::new(ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a root");
        OrConfiguredCertificate { inner, given: vec![certificate(given)] }
    }

    #[test]
    fn configured_certificate_needs_its_usage() {
        let (server, now) = (ServerName::try_from("registry.example").expect("a name"), year(2060));
        for (servers, taken) in [(true, true), (false, false)] {
            let own = self_signed_for_pem(servers);
            let got = verifier(&own).verify_server_cert(&certificate(&own), &[], &server, &[], now);
            assert_eq!(got.is_ok(), taken, "{got:?}");
            let purpose = rustls::Error::InvalidCertificate(CertificateError::InvalidPurpose);
            assert!(got.err().is_none_or(|error| error == purpose));
        }
    }

    #[test]
    fn expired_certificate_error_includes_the_clock() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (time, not_before, not_after) = (at(12), at(1_262_304_000), at(u64::MAX));
        let young = CertificateError::NotValidYetContext { time, not_before };
        assert_eq!(
            clock_mismatch(&young.into()).expect("names the clock"),
            "the server's certificate is not valid before Fri, 01 Jan 2010 00:00:00 GMT, and the clock of this machine, which may \
             be wrong, shows Thu, 01 Jan 1970 00:00:12 GMT"
        );
        let old = CertificateError::ExpiredContext { time: at(u64::MAX), not_after };
        let message = clock_mismatch(&old.into()).expect("names the clock");
        assert!(message.contains("was valid until Fri, 31 Dec 9999 23:59:59 GMT"), "{message}");
        assert_eq!(clock_mismatch(&CertificateError::UnknownIssuer.into()), None);
    }

    fn year(n: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((n - 1970) * 31_556_952))
    }

    #[test]
    fn configured_certificate_needs_its_name_and_validity() {
        let (own, other) = (self_signed_pem(), ca_pem());
        let cases = [
            ("the very certificate", &own, "registry.example", 2030, None),
            ("by address", &own, "127.0.0.1", 2030, None),
            ("another name", &own, "other.example", 2030, Some("NotValidForName")),
            ("before its time", &own, "registry.example", 2010, Some("NotValidYet")),
            ("after its time", &own, "registry.example", 2200, Some("Expired")),
            ("one that was not given", &other, "registry.example", 2030, Some("CaUsedAsEndEntity")),
        ];
        for (name, given, server, now, want) in cases {
            let server = ServerName::try_from(server).expect("a name");
            let shown = certificate(&own);
            let got = verifier(given).verify_server_cert(&shown, &[], &server, &[], year(now));
            match (got, want) {
                (Ok(_), None) => {}
                (Err(error), Some(want)) => assert!(format!("{error:?}").contains(want), "{name}: {error:?}"),
                (got, want) => panic!("{name}: {got:?}, not {want:?}"),
            }
        }
    }
}
