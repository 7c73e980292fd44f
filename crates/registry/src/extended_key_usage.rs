//! Reads from a certificate whether servers may show it (extended key usage). The TLS library checks this only after it
//! has refused an authority's certificate as a server's; [`crate::tls`], which accepts one that is configured, checks
//! it here by the same rule. Refuses a certificate that cannot be read.

use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate, X509Extension};

/// Returns true if servers may show this certificate: its extension names them, or there is none.
pub(crate) fn is_for_servers(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let mut usages = certificate.extensions().iter().filter(|e| e.oid == OID_X509_EXT_EXTENDED_KEY_USAGE);
    match (usages.next().map(X509Extension::parsed_extension), usages.next()) {
        (None, _) => true,
        (Some(ParsedExtension::ExtendedKeyUsage(usage)), None) => usage.server_auth,
        // Damaged, or present twice. `X509Certificate::extended_key_usage` returns a damaged one as absent.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;
    use crate::testing::{ca_pem, self_signed_for_pem, self_signed_pem};

    fn der(pem: &[u8]) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem).expect("our own PEM").to_vec()
    }

    #[test]
    fn usages_of_certificates() {
        let cases = [
            ("nothing said", self_signed_pem(), true),
            ("an authority's", ca_pem(), true),
            ("for servers", self_signed_for_pem(true), true),
            ("for clients alone", self_signed_for_pem(false), false),
        ];
        for (what, pem, want) in cases {
            assert_eq!(is_for_servers(&der(&pem)), want, "{what}");
        }
        let whole = der(&self_signed_for_pem(true));
        for length in 0..whole.len() {
            assert!(!is_for_servers(&whole[..length]), "the first {length} bytes");
        }
    }

    #[test]
    fn damaged_usage_is_for_no_server() {
        // 2.5.29.37, and behind it the octets with the list of usages.
        let name = [0x55, 0x1d, 0x25];
        let whole = der(&self_signed_for_pem(true));
        let at = whole.windows(name.len()).position(|part| part == name).expect("the extension");
        for (place, to) in [(at + 3, 0x05), (at + 5, 0x31), (at + 7, 0x02)] {
            let mut damaged = whole.clone();
            damaged[place] = to;
            assert!(!is_for_servers(&damaged), "byte {} of the extension", place - at);
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(at in 0_usize..600, to: u8) {
            let mut bytes = der(&self_signed_for_pem(false));
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = is_for_servers(&bytes);
        }
    }
}
