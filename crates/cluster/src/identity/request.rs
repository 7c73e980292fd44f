//! A key, and the request for a client certificate that is signed with it (PKCS #10). Pure but for the chance in a key. Called by
//! [`super::signing`].

use base::der::tag::{BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, SET, UTF8_STRING, explicit};
use base::der::value;
use base::pem;
use oci::Secret;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use sha2::{Digest, Sha256};

/// Object identifiers, in their encoding.
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME_256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA_256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// A key for a client certificate.
pub(super) struct ClientKey {
    pair: EcdsaKeyPair,
    /// PKCS #8 in PEM.
    pem: Secret,
}

/// The key cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct KeyError(&'static str);

impl ClientKey {
    /// A new key.
    pub(super) fn generate() -> Result<Self, KeyError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        let document = document.map_err(|_| KeyError("the system has no random numbers"))?;
        Self::read(Secret::new(pem::write("PRIVATE KEY", document.as_ref())))
    }

    /// The key in PEM.
    pub(super) fn read(pem: Secret) -> Result<Self, KeyError> {
        let document = pem::read("PRIVATE KEY", pem.expose()).ok_or(KeyError("the file has no private key in PEM"))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &document, &SystemRandom::new());
        let pair = pair.map_err(|_| KeyError("the private key is damaged"))?;
        Ok(Self { pair, pem })
    }

    pub(super) fn pem(&self) -> &Secret {
        &self.pem
    }

    /// A name that this key alone has.
    pub(super) fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.pair.public_key().as_ref()))
    }

    /// The request for a certificate of this name, in PEM.
    pub(super) fn request(&self, organization: &str, common_name: &str) -> Result<String, KeyError> {
        let oid = |id: &[u8]| value(OBJECT_IDENTIFIER, &[id]);
        let sequence = |parts: &[&[u8]]| value(SEQUENCE, parts);
        let attribute =
            |kind: &[u8], text: &str| value(SET, &[&sequence(&[&oid(kind), &value(UTF8_STRING, &[text.as_bytes()])])]);
        let bits = |bytes: &[u8]| value(BIT_STRING, &[&[0], bytes]);
        let subject = sequence(&[&attribute(ORGANIZATION, organization), &attribute(COMMON_NAME, common_name)]);
        let algorithm = sequence(&[&oid(EC_PUBLIC_KEY), &oid(PRIME_256)]);
        let key = sequence(&[&algorithm, &bits(self.pair.public_key().as_ref())]);
        let info = sequence(&[&value(INTEGER, &[&[0]]), &subject, &key, &value(explicit(0), &[])]);
        let signature = self.pair.sign(&SystemRandom::new(), &info);
        let signature = signature.map_err(|_| KeyError("the system has no random numbers"))?;
        let with = sequence(&[&oid(ECDSA_WITH_SHA_256)]);
        Ok(pem::write("CERTIFICATE REQUEST", &sequence(&[&info, &with, &bits(signature.as_ref())])))
    }
}

#[cfg(test)]
mod tests {
    use base::der::{expect, take};

    use super::*;

    #[test]
    fn a_key_comes_back_and_signs_what_it_says() {
        let key = ClientKey::generate().expect("a key");
        let again = ClientKey::read(key.pem().clone()).expect("the same key");
        assert_eq!(again.fingerprint(), key.fingerprint());
        assert_ne!(ClientKey::generate().expect("a key").fingerprint(), key.fingerprint());
        let text = again.request("system:nodes", "system:node:n").expect("a request");
        let whole = pem::read("CERTIFICATE REQUEST", &text).expect("PEM");
        let (outer, rest) = expect(SEQUENCE, &whole).expect("a sequence");
        assert!(rest.is_empty());
        let (info, rest) = expect(SEQUENCE, outer).expect("what is signed");
        let signed = &outer[..outer.len() - rest.len()];
        let (_, _, rest) = take(rest).expect("an algorithm");
        let (signature, _) = expect(BIT_STRING, rest).expect("a signature");
        let public = ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_ASN1,
            key.pair.public_key().as_ref(),
        );
        public.verify(signed, &signature[1..]).expect("signed with this key");
        let text = String::from_utf8_lossy(info);
        assert!(text.contains("system:nodes") && text.contains("system:node:n"), "{text}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(ClientKey::read(Secret::new(text)).is_err(), "{text}");
        }
    }
}
