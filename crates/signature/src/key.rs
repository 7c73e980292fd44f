//! [`PublicKey`]: a key of the policy, from PEM (`PUBLIC KEY`, the form that cosign and openssl write), and the
//! verification of signatures by it. The algorithms are those of `cosign generate-key-pair` and of key management
//! services; another one is refused when the policy is read, not when an image is pulled.

use std::fmt;

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::alg_id;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use x509_parser::asn1_rs::{Any, BitString, FromDer, Integer, Oid, Sequence, Tag};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};

/// The reason why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No public key in PEM.
    #[error("there is no PEM block PUBLIC KEY")]
    NoKey,
    /// PEM that cannot be read.
    #[error("not valid PEM")]
    Pem,
    /// A private key has no business on a node.
    #[error("it is a private key: use the public key instead, and remove this file")]
    Private,
    /// More than one key.
    #[error("there are {0} keys: use one file per key, listed in keyPaths")]
    Several(usize),
    /// The structure is not that of a public key.
    #[error("the PEM block PUBLIC KEY is damaged")]
    Damaged,
    /// An algorithm, a curve or a size that is not supported.
    #[error("{0}; supported are ECDSA on P-256 and P-384, Ed25519, and RSA of 2048 to 8192 bits")]
    Unsupported(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAlgorithm {
    P256,
    P384,
    Ed25519,
    Rsa,
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyAlgorithm,
    /// The point, or the `RSAPublicKey`, as in the key's bit string.
    bytes: Vec<u8>,
}

impl PublicKey {
    /// The one public key in a PEM text.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
            match section.map_err(|_| KeyError::Pem)? {
                (SectionKind::PublicKey, der) => keys.push(der),
                (SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _) => {
                    return Err(KeyError::Private);
                }
                _ => {}
            }
        }
        // The reader of PEM skips other types; an error for a private key names the mistake.
        if text.windows(PRIVATE_MARK.len()).any(|part| part == PRIVATE_MARK) {
            return Err(KeyError::Private);
        }
        match keys.as_slice() {
            [] => Err(KeyError::NoKey),
            [der] => Self::from_der(der),
            several => Err(KeyError::Several(several.len())),
        }
    }

    /// A `SubjectPublicKeyInfo`.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let (algorithm, bytes) = parts(der).ok_or(KeyError::Damaged)?;
        let (parameters, name) = object_identifier(&algorithm).ok_or(KeyError::Damaged)?;
        let unsupported = |what: &str| Err(KeyError::Unsupported(what.to_owned()));
        let kind = if name == OID_KEY_TYPE_EC_PUBLIC_KEY {
            let kind = match object_identifier(parameters) {
                Some((&[], curve)) if curve == OID_EC_P256 => KeyAlgorithm::P256,
                Some((&[], curve)) if curve == OID_NIST_EC_P384 => KeyAlgorithm::P384,
                _ => return unsupported("its elliptic curve is another one"),
            };
            let length = if kind == KeyAlgorithm::P256 { 65 } else { 97 };
            if bytes.len() != length || bytes[0] != 4 {
                return unsupported("its point is not given in full");
            }
            kind
        } else if name == OID_SIG_ED25519 {
            if !parameters.is_empty() || bytes.len() != 32 {
                return Err(KeyError::Damaged);
            }
            KeyAlgorithm::Ed25519
        } else if name == OID_PKCS1_RSAENCRYPTION {
            if !parameters.is_empty() && algorithm != alg_id::RSA_ENCRYPTION.as_ref() {
                return Err(KeyError::Damaged);
            }
            let bits = modulus_bits(&bytes).ok_or(KeyError::Damaged)?;
            if !(2048..=8192).contains(&bits) {
                return Err(KeyError::Unsupported(format!("RSA key of {bits} bits")));
            }
            KeyAlgorithm::Rsa
        } else {
            return unsupported("its algorithm is another one");
        };
        Ok(Self { kind, bytes })
    }

    /// Returns true if this key made the signature of this message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let fits = |algorithm: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
        };
        match self.kind {
            KeyAlgorithm::P256 => fits(&signature::ECDSA_P256_SHA256_ASN1),
            // cosign hashed with SHA-256 for every curve before it chose the hash by the curve.
            KeyAlgorithm::P384 => fits(&signature::ECDSA_P384_SHA256_ASN1) || fits(&signature::ECDSA_P384_SHA384_ASN1),
            KeyAlgorithm::Ed25519 => fits(&signature::ED25519),
            KeyAlgorithm::Rsa => fits(&signature::RSA_PKCS1_2048_8192_SHA256),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("kind", &self.kind).finish_non_exhaustive()
    }
}

const PRIVATE_MARK: &[u8] = b"PRIVATE KEY-----";

/// The algorithm with its parameters and the bits of a `SubjectPublicKeyInfo`; `None` if anything else is in it.
fn parts(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let info = whole::<Sequence<'_>>(der)?;
    let (rest, algorithm) = Sequence::from_der(&info.content).ok()?;
    let bits = whole::<BitString<'_>>(rest)?;
    (bits.unused_bits == 0).then(|| (algorithm.content.into_owned(), bits.data.into_owned()))
}

/// Reads an object identifier, and returns what follows it. `Oid::from_der` takes values of any type.
fn object_identifier(der: &[u8]) -> Option<(&[u8], Oid<'_>)> {
    let (rest, value) = Any::from_der(der).ok()?;
    value.tag().assert_eq(Tag::Oid).ok()?;
    Some((rest, Oid::try_from(value).ok()?))
}

/// The only value in `der`.
fn whole<'a, T: FromDer<'a>>(der: &'a [u8]) -> Option<T> {
    T::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, value)| value)
}

/// How many bits the modulus of an `RSAPublicKey` has; `None` if it is damaged or negative.
fn modulus_bits(der: &[u8]) -> Option<usize> {
    let key = whole::<Sequence<'_>>(der)?;
    let (rest, modulus) = Integer::from_der(&key.content).ok()?;
    whole::<Integer<'_>>(rest)?;
    let digits = match modulus.as_ref() {
        // DER has a zero in front of a first bit that is set.
        [0, digits @ ..] => digits,
        digits if digits.first().is_some_and(|first| *first < 0x80) => digits,
        _ => return None,
    };
    let first = digits.first()?;
    Some(digits.len() * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
