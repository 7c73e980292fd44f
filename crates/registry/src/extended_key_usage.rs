//! Reads from a certificate whether servers may show it (extended key usage). The TLS library checks this only after it
//! has refused an authority's certificate as a server's; [`crate::tls`], which accepts one that is configured, checks
//! it here by the same rule. Reads DER that was parsed before, and refuses what it does not understand.

const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// The extensions of a certificate.
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.37
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// 1.3.6.1.5.5.7.3.1
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// Returns true if servers may show this certificate: its extension names them, or there is none.
pub(crate) fn is_for_servers(certificate: &[u8]) -> bool {
    allows_servers(certificate).unwrap_or(false)
}

/// The same as [`is_for_servers`]; `None` for a certificate that is not understood.
fn allows_servers(certificate: &[u8]) -> Option<bool> {
    let (body, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(body, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content, rest) = next(fields)?;
        fields = rest;
        if tag == EXTENSIONS {
            let (mut extensions, _) = expect(content, SEQUENCE)?;
            while !extensions.is_empty() {
                let (extension, rest) = expect(extensions, SEQUENCE)?;
                extensions = rest;
                let (name, mut value) = expect(extension, OBJECT)?;
                if name == EXTENDED_KEY_USAGE {
                    // A word on whether it is critical may stand between.
                    let (mut tag, mut content);
                    (tag, content, value) = next(value)?;
                    if tag != OCTETS {
                        (tag, content, _) = next(value)?;
                    }
                    let list = (tag == OCTETS).then_some(content)?;
                    let (mut usages, _) = expect(list, SEQUENCE)?;
                    let mut listed = std::iter::from_fn(|| {
                        let (usage, rest) = expect(usages, OBJECT)?;
                        usages = rest;
                        Some(usage)
                    });
                    return Some(listed.any(|usage| usage == SERVER_AUTH));
                }
            }
        }
    }
    Some(true)
}

/// The content of the next element, which has this tag, and what follows it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = next(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Tag and content of the next element, and what follows it.
fn next(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
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
            // The signature is not looked at; whatever is cut off before is not understood, or is as it was.
            let _ = is_for_servers(&whole[..length]);
        }
        assert!(!is_for_servers(&whole[..whole.len() / 2]));
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
