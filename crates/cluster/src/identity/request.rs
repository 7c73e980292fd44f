//! A key, and the request for a client certificate that is signed with it (PKCS #10). Pure except for the random numbers of a key.
//! Called by [`super::signing`].

use base::pem;
use oci::Secret;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest, Sha256};

/// A key for a client certificate.
pub(super) struct ClientKey {
    pair: KeyPair,
    /// PKCS #8 in PEM.
    pem: Secret,
}

/// The key cannot be made or read, or cannot sign.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error("the file has no private key in PEM")]
    NoPem,
    #[error("the private key is damaged")]
    Damaged,
    #[error("cannot make a key: {0}")]
    Make(rcgen::Error),
    #[error("cannot sign a request: {0}")]
    Sign(rcgen::Error),
}

impl ClientKey {
    /// Generates a new key.
    pub(super) fn generate() -> Result<Self, KeyError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(KeyError::Make)?;
        let pem = Secret::new(pem::write("PRIVATE KEY", pair.serialized_der()));
        Ok(Self { pair, pem })
    }

    /// Reads a key in PEM.
    pub(super) fn read(pem: Secret) -> Result<Self, KeyError> {
        let document = PrivatePkcs8KeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| KeyError::NoPem)?;
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&document, &PKCS_ECDSA_P256_SHA256);
        Ok(Self { pair: pair.map_err(|_| KeyError::Damaged)?, pem })
    }

    pub(super) fn pem(&self) -> &Secret {
        &self.pem
    }

    /// Returns a unique name of this key.
    pub(super) fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.pair.public_key_raw()))
    }

    /// Returns the request for a certificate of this name, in PEM.
    pub(super) fn request(&self, organization: &str, common_name: &str) -> Result<String, KeyError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, organization);
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        let request = parameters.serialize_request(&self.pair).map_err(KeyError::Sign)?;
        Ok(pem::write("CERTIFICATE REQUEST", request.der()))
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    };
    use rustls_pki_types::CertificateSigningRequestDer;
    use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

    use super::*;

    #[test]
    fn a_saved_key_is_read_back_and_signs_requests() {
        let key = ClientKey::generate().expect("a key");
        let again = ClientKey::read(key.pem().clone()).expect("the same key");
        assert_eq!(again.fingerprint(), key.fingerprint());
        assert_ne!(ClientKey::generate().expect("a key").fingerprint(), key.fingerprint());
        let text = again.request("system:nodes", "system:node:n").expect("a request");
        let whole = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).expect("PEM");
        let (rest, read) = X509CertificationRequest::from_der(&whole).expect("a request");
        assert!(rest.is_empty());
        let info = &read.certification_request_info;
        // A signer of kubelets' certificates accepts this subject and no alternative name.
        assert_eq!(info.subject.to_string(), "O=system:nodes, CN=system:node:n");
        assert!(info.attributes().is_empty(), "{:?}", info.attributes());
        assert_eq!(info.subject_pki.subject_public_key.data.as_ref(), key.pair.public_key_raw());
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.pair.public_key_raw());
        public.verify(info.raw, &read.signature_value.data).expect("signed with this key");
    }

    #[test]
    fn key_of_an_earlier_version_is_read() {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        let document = document.expect("a key");
        let text = pem::write("PRIVATE KEY", document.as_ref());
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &SystemRandom::new());
        let point = pair.expect("a key").public_key().as_ref().to_vec();
        let key = ClientKey::read(Secret::new(text.clone())).expect("the key");
        assert_eq!(key.pem().expose(), text);
        // The name of a pending request depends on it.
        assert_eq!(key.fingerprint(), hex::encode(Sha256::digest(point)));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(ClientKey::read(Secret::new(text)).is_err(), "{text}");
        }
    }
}
