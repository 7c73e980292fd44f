//! The identity in a client certificate: common name and organizations of its subject, as the API server reads them. Verifies
//! nothing: TLS has verified the certificate before.

use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::kubelet_api::authority::Identity;

/// Reads the subject of a certificate; `None` where it has no common name, or a name that cannot be read.
pub(crate) fn identity(certificate: &[u8]) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut identity = Identity::default();
    for attribute in certificate.subject().iter_attributes() {
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            attribute.as_str().ok()?.clone_into(&mut identity.name);
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            identity.groups.push(attribute.as_str().ok()?.to_owned());
        }
    }
    (!identity.name.is_empty()).then_some(identity)
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    /// Certificates that openssl made, with an issuer of another name.
    macro_rules! certificate {
        ($name:literal) => {
            CertificateDer::from_pem_slice(include_bytes!(concat!("testdata/", $name, ".pem"))).expect("a certificate")
        };
    }

    #[test]
    fn the_subject_is_the_identity() {
        // Two organizations, a country between them, and the common name; as version 3 and as version 1.
        for certificate in [certificate!("two-groups-v3"), certificate!("two-groups-v1")] {
            let found = identity(&certificate).expect("a subject");
            assert_eq!(found.name, "kubelet-client");
            assert_eq!(found.groups, ["system:masters", "staff"]);
        }
        assert_eq!(identity(&certificate!("no-common-name")), None, "an identity without a name");
        let whole = certificate!("two-groups-v3");
        // A common name as a string of another type, which is not read.
        let mut other = whole.to_vec();
        let at = other.windows(7).position(|part| part[..3] == [0x55, 4, 3] && part[5..] == *b"ku").expect("the name");
        other[at + 3] = 0x1e;
        assert_eq!(identity(&other), None, "an unreadable name");
        for length in 0..whole.len() {
            assert_eq!(identity(&whole[..length]), None, "the first {length} bytes");
        }
        for garbage in [&[][..], &[0x30, 0], &[0x30, 2, 0x30, 0], b"garbage"] {
            assert_eq!(identity(garbage), None);
        }
    }

    #[test]
    fn last_common_name_counts() {
        assert_eq!(identity(&certificate!("two-names")).expect("a subject").name, "second");
    }
}
