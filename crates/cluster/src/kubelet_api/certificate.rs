//! The serving certificate of this node: self-signed, as that of a kubelet without a configured certificate, kept in one file
//! with its key, and replaced before it expires or when the node's names change. No signer of the API server issues one without
//! an approval.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use base::{pem, write_private};
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

/// Validity of a certificate, as in the kubelet.
const VALID_DAYS: i64 = 365;
/// The certificate is replaced when fewer days than these are left.
const RENEW_DAYS: i64 = 30;
/// Name of the file.
const FILE: &str = "kubelet-server.pem";

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
        let (made, text) = make(names, ExtendedKeyUsagePurpose::ServerAuth, now)?;
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

/// Returns the first line of the file, up to the end of the certificate's validity.
fn head_for(names: &ServerNames) -> String {
    let mut text = format!("# imagelet's serving certificate for {}", names.node);
    names.addresses.iter().for_each(|address| text.push_str(&format!(" {address}")));
    text + " until "
}

/// Makes a key and its certificate for this usage, and the text of the file.
pub(crate) fn make(
    names: &ServerNames,
    usage: ExtendedKeyUsagePurpose,
    now: Timestamp,
) -> io::Result<(ServerKey, String)> {
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("make a serving certificate: {error}"));
    let until = now.checked_add((VALID_DAYS * 24).hours()).map_err(|error| failed(&error))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
    let made = parameters(names, usage, now, until).map_err(|error| failed(&error))?;
    let made = made.self_signed(&key).map_err(|error| failed(&error))?;
    let text = head_for(names)
        + &until.to_string()
        + "\n"
        + &pem::write("CERTIFICATE", made.der())
        + &pem::write("PRIVATE KEY", key.serialized_der());
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    Ok((ServerKey { certificate: made.der().clone(), key }, text))
}

fn parameters(
    names: &ServerNames,
    usage: ExtendedKeyUsagePurpose,
    from: Timestamp,
    until: Timestamp,
) -> Result<CertificateParams, Box<dyn std::error::Error>> {
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| "the system has no random numbers")?;
    // Positive, and without a leading zero.
    serial[0] = serial[0] & 0x3F | 0x40;
    let mut parameters = CertificateParams::default();
    parameters.serial_number = Some(SerialNumber::from_slice(&serial));
    parameters.not_before = OffsetDateTime::from_unix_timestamp(from.as_second())?;
    parameters.not_after = OffsetDateTime::from_unix_timestamp(until.as_second())?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, names.node.as_str());
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![usage];
    parameters.subject_alt_names = vec![SanType::DnsName(names.node.as_str().try_into()?)];
    parameters.subject_alt_names.extend(names.addresses.iter().copied().map(SanType::IpAddress));
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use x509_parser::prelude::{FromDer as _, X509Certificate};

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
        let (made, _) =
            make(&names("edge", "192.0.2.10"), ExtendedKeyUsagePurpose::ServerAuth, now).expect("a certificate");
        let end = webpki::EndEntityCert::try_from(&made.certificate).expect("it can be read");
        for name in ["edge", "192.0.2.10", "fd00::1"] {
            let name = rustls_pki_types::ServerName::try_from(name).expect("a name");
            end.verify_is_valid_for_subject_name(&name).expect("the name is in it");
        }
        let other = rustls_pki_types::ServerName::try_from("192.0.2.11").expect("a name");
        end.verify_is_valid_for_subject_name(&other).expect_err("another address");
        assert_eq!(crate::kubelet_api::subject::identity(&made.certificate).expect("a subject").name, "edge");
    }

    #[test]
    fn certificate_has_the_fields_of_a_serving_certificate() {
        let now: Timestamp = "2049-06-01T12:30:15.5Z".parse().expect("a time");
        let (made, text) =
            make(&names("edge", "192.0.2.10"), ExtendedKeyUsagePurpose::ServerAuth, now).expect("a certificate");
        let (rest, read) = X509Certificate::from_der(&made.certificate).expect("a certificate");
        assert!(rest.is_empty());
        assert_eq!(
            (read.version().0, read.subject().to_string(), read.issuer()),
            (2, "CN=edge".into(), read.subject())
        );
        let serial = read.raw_serial();
        assert!(serial.len() == 16 && (0x40..0x80).contains(&serial[0]), "{serial:?}");
        let validity = read.validity();
        assert_eq!(validity.not_before.timestamp(), now.as_second());
        assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), VALID_DAYS * 24 * 3600);
        // The year decides about the form of a time (RFC 5280, section 4.1.2.5).
        assert!(validity.not_before.is_utctime() && validity.not_after.is_generalizedtime());
        let usage = read.key_usage().expect("readable").expect("an extension");
        assert!(usage.critical && usage.value.digital_signature() && usage.value.flags == 1, "{:?}", usage.value);
        let extended = read.extended_key_usage().expect("readable").expect("an extension").value;
        assert!(extended.server_auth && !extended.client_auth && !extended.any, "{extended:?}");
        assert_eq!((read.extensions().len(), read.is_ca()), (3, false));
        assert!(text.starts_with(
            "# imagelet's serving certificate for edge 192.0.2.10 fd00::1 until 2050-06-01T12:30:15.5Z\n"
        ));
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).expect("a key");
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).expect("a key");
        assert_eq!(read.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
    }

    #[test]
    fn name_that_no_certificate_can_have_is_an_error() {
        let made = make(&names("édge", "192.0.2.10"), ExtendedKeyUsagePurpose::ServerAuth, Timestamp::now());
        let error = made.map(|(_, text)| text).expect_err("not a DNS name").to_string();
        assert!(error.starts_with("make a serving certificate: "), "{error}");
    }
}
