//! Reads from a certificate whether servers may show it (extended key usage). The TLS library checks this only after it
//! has refused an authority's certificate as a server's; [`crate::tls`], which accepts one that is configured, checks
//! it here by the same rule. Refuses a certificate that cannot be read.

use x509_parser::asn1_rs::{Any, Sequence, Tag, oid};
use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The usage of certificates that servers show: `id-kp-serverAuth`.
const SERVER_AUTH: &[u8] = &oid!(raw 1.3.6.1.5.5.7.3.1);

/// Returns true if servers may show this certificate: its extension names them, or there is none.
pub(crate) fn is_for_servers(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let mut usages = certificate.extensions().iter().filter(|e| e.oid == OID_X509_EXT_EXTENDED_KEY_USAGE);
    match (usages.next(), usages.next()) {
        (None, _) => true,
        (Some(usage), None) => names_servers(usage.value).unwrap_or(false),
        (Some(_), Some(_)) => false,
    }
}

/// Returns true if a list of usages names servers; `None` if it is damaged. The reader of x509-parser reports a damaged list as
/// absent, and takes values of any type for object identifiers.
fn names_servers(list: &[u8]) -> Option<bool> {
    let (after, list) = Sequence::from_der(list).ok()?;
    let (mut rest, mut found) = (&list.content[..], false);
    while !rest.is_empty() {
        let (next, usage) = Any::from_der(rest).ok()?;
        usage.tag().assert_eq(Tag::Oid).ok()?;
        found |= usage.data == SERVER_AUTH;
        rest = next;
    }
    after.is_empty().then_some(found)
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
