//! The serving certificate of this node: self-signed, as that of a kubelet without a configured certificate, kept in one file
//! with its key, and replaced before it expires or when the node's names change. No signer of the API server issues one without
//! an approval.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use base::der::{tag, value};
use base::{pem, write_private};
use jiff::{Timestamp, ToSpan as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// How long a certificate is good, as a kubelet's.
const VALID_DAYS: i64 = 365;
/// The certificate is replaced when fewer days than these are left.
const RENEW_DAYS: i64 = 30;
/// Name of the file.
const FILE: &str = "kubelet-server.pem";

/// 1.2.840.10045.4.3.2, ecdsa-with-SHA256.
const ECDSA_WITH_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x02];
/// 1.2.840.10045.2.1, a public key on a curve.
const EC_PUBLIC_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
/// 1.2.840.10045.3.1.7, the curve P-256.
const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.15, 2.5.29.17, 2.5.29.37.
const KEY_USAGE: &[u8] = &[0x55, 0x1D, 0x0F];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1D, 0x11];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1D, 0x25];
/// 1.3.6.1.5.5.7.3.1, server authentication.
const SERVER_AUTH: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// Names and addresses of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNames {
    /// Name of the node.
    pub node: String,
    /// Addresses of the node.
    pub addresses: Vec<IpAddr>,
}

/// A certificate with its key.
pub(crate) struct ServerKey {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl ServerKey {
    /// Opens the certificate in `directory`, and makes one if there is none that is valid for `names`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn open(directory: &Path, names: &ServerNames, now: Timestamp) -> io::Result<Self> {
        let path = directory.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => {
                if let Some(kept) = Self::read(&text, names, now) {
                    return Ok(kept);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (made, text) = make(names, SERVER_AUTH, now)?;
        write_private(&path, text.as_bytes())?;
        Ok(made)
    }

    /// Reads a file that was written for these names and is good for a while.
    fn read(text: &str, names: &ServerNames, now: Timestamp) -> Option<Self> {
        let (head, _) = text.split_once('\n')?;
        let until = head.strip_prefix(&head_for(names))?;
        let until: Timestamp = until.parse().ok()?;
        let left = until.duration_since(now);
        if left < jiff::SignedDuration::from_hours(RENEW_DAYS * 24) {
            return None;
        }
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()?;
        Some(Self { certificate, key })
    }
}

/// The first line of the file, up to the end of the certificate's validity.
fn head_for(names: &ServerNames) -> String {
    let mut text = format!("# imagelet's serving certificate for {}", names.node);
    names.addresses.iter().for_each(|address| text.push_str(&format!(" {address}")));
    text + " until "
}

/// Makes a key and its certificate for this usage, and the text of the file.
pub(crate) fn make(names: &ServerNames, usage: &[u8], now: Timestamp) -> io::Result<(ServerKey, String)> {
    let random = SystemRandom::new();
    let failed = |what: &str| io::Error::other(format!("make a serving certificate: {what}"));
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| failed("no key"))?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random)
        .map_err(|_| failed("the key is none"))?;
    let mut serial = [0; 16];
    random.fill(&mut serial).map_err(|_| failed("no random numbers"))?;
    // Positive, and without a leading zero.
    serial[0] = serial[0] & 0x3F | 0x40;
    let until = now.checked_add((VALID_DAYS * 24).hours()).map_err(|_| failed("the time is out of range"))?;
    let body = to_be_signed(names, usage, &serial, pair.public_key().as_ref(), now, until);
    let signature = pair.sign(&random, &body).map_err(|_| failed("no signature"))?;
    let signature = value(tag::BIT_STRING, &[&[0], signature.as_ref()]);
    let certificate = value(tag::SEQUENCE, &[&body, &algorithm(), &signature]);
    let text = head_for(names)
        + &until.to_string()
        + "\n"
        + &pem::write("CERTIFICATE", &certificate)
        + &pem::write("PRIVATE KEY", pkcs8.as_ref());
    let key = PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec()).into();
    Ok((ServerKey { certificate: certificate.into(), key }, text))
}

fn to_be_signed(
    names: &ServerNames,
    usage: &[u8],
    serial: &[u8],
    key: &[u8],
    from: Timestamp,
    until: Timestamp,
) -> Vec<u8> {
    let oid = |id: &[u8]| value(tag::OBJECT_IDENTIFIER, &[id]);
    let sequence = |parts: &[&[u8]]| value(tag::SEQUENCE, parts);
    // Two digits of the year up to 2049 (RFC 5280, section 4.1.2.5).
    let time = |time: Timestamp| {
        let text = time.strftime("%Y%m%d%H%M%SZ").to_string();
        match text.get(2..).filter(|_| text.as_str() < "2050") {
            Some(short) => value(tag::UTC_TIME, &[short.as_bytes()]),
            None => value(tag::GENERALIZED_TIME, &[text.as_bytes()]),
        }
    };
    let common_name = value(tag::UTF8_STRING, &[names.node.as_bytes()]);
    let name = sequence(&[&value(tag::SET, &[&sequence(&[&oid(COMMON_NAME), &common_name])])]);
    let key = sequence(&[&sequence(&[&oid(EC_PUBLIC_KEY), &oid(P256)]), &value(tag::BIT_STRING, &[&[0], key])]);
    let extension = |id: &[u8], critical: bool, content: &[u8]| {
        let critical = if critical { value(tag::BOOLEAN, &[&[0xFF]]) } else { Vec::new() };
        sequence(&[&oid(id), &critical, &value(tag::OCTET_STRING, &[content])])
    };
    let mut alternatives = value(tag::implicit(2), &[names.node.as_bytes()]);
    for address in &names.addresses {
        alternatives.extend(match address {
            IpAddr::V4(address) => value(tag::implicit(7), &[&address.octets()]),
            IpAddr::V6(address) => value(tag::implicit(7), &[&address.octets()]),
        });
    }
    let extensions = sequence(&[
        // Digital signatures: the first of eight bits.
        &extension(KEY_USAGE, true, &value(tag::BIT_STRING, &[&[7, 0x80]])),
        &extension(EXTENDED_KEY_USAGE, false, &sequence(&[&oid(usage)])),
        &extension(SUBJECT_ALT_NAME, false, &sequence(&[&alternatives])),
    ]);
    sequence(&[
        // Version 3.
        &value(tag::explicit(0), &[&value(tag::INTEGER, &[&[2]])]),
        &value(tag::INTEGER, &[serial]),
        &algorithm(),
        &name,
        &sequence(&[&time(from), &time(until)]),
        &name,
        &key,
        &value(tag::explicit(3), &[&extensions]),
    ])
}

fn algorithm() -> Vec<u8> {
    value(tag::SEQUENCE, &[&value(tag::OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(node: &str, address: &str) -> ServerNames {
        ServerNames {
            node: node.to_owned(),
            addresses: vec![address.parse().expect("an address"), "fd00::1".parse().expect("an address")],
        }
    }

    #[test]
    fn a_certificate_is_kept_until_it_ends_or_the_names_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let below = directory.path().join("pki");
        let now: Timestamp = "2026-11-24T00:00:00Z".parse().expect("a time");
        let open = |names: &ServerNames, days: i64| {
            let later = now.checked_add((days * 24).hours()).expect("a time");
            ServerKey::open(&below, names, later).expect("a certificate").certificate
        };
        let edge = names("edge", "192.0.2.10");
        let first = open(&edge, 0);
        assert_eq!(open(&edge, VALID_DAYS - RENEW_DAYS), first);
        assert_ne!(open(&edge, VALID_DAYS - RENEW_DAYS + 1), first);
        let second = open(&edge, 300);
        assert_ne!(open(&names("edge", "192.0.2.11"), 300), second);
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&below), mode(&below.join(FILE))), (0o700, 0o600));
        fs::write(below.join(FILE), "garbage").expect("write");
        assert_ne!(open(&edge, 0), first);
    }

    #[test]
    fn a_client_finds_the_names_in_it() {
        let now = Timestamp::now();
        let (made, _) = make(&names("edge", "192.0.2.10"), SERVER_AUTH, now).expect("a certificate");
        let end = webpki::EndEntityCert::try_from(&made.certificate).expect("it can be read");
        for name in ["edge", "192.0.2.10", "fd00::1"] {
            let name = rustls_pki_types::ServerName::try_from(name).expect("a name");
            end.verify_is_valid_for_subject_name(&name).expect("the name is in it");
        }
        let other = rustls_pki_types::ServerName::try_from("192.0.2.11").expect("a name");
        end.verify_is_valid_for_subject_name(&other).expect_err("another address");
        assert_eq!(crate::kubelet_api::subject::identity(&made.certificate).expect("a subject").name, "edge");
    }
}
