//! [`PublicKey`]: a key of the policy, from PEM (`PUBLIC KEY`, the form that cosign and openssl write), and the
//! verification of signatures by it. The algorithms are those of `cosign generate-key-pair` and of key management
//! services; another one is refused when the policy is read, not when an image is pulled.

use std::fmt;

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::pem::{PemObject as _, SectionKind};

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

/// Bytes of the object identifiers that a public key may begin with (RFC 3279, RFC 5480, RFC 8410).
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;
const NULL: u8 = 0x05;

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
        let (info, rest) = element(der, SEQUENCE).ok_or(KeyError::Damaged)?;
        let (algorithm, info) = element(info, SEQUENCE).ok_or(KeyError::Damaged)?;
        let (bits, end) = element(info, BIT_STRING).ok_or(KeyError::Damaged)?;
        let (oid, parameters) = element(algorithm, OID).ok_or(KeyError::Damaged)?;
        // A bit string begins with the number of bits that its last byte does not use.
        let Some((0, bytes)) = bits.split_first() else { return Err(KeyError::Damaged) };
        if !rest.is_empty() || !end.is_empty() {
            return Err(KeyError::Damaged);
        }
        let unsupported = |what: &str| Err(KeyError::Unsupported(what.to_owned()));
        let kind = match oid {
            EC => match element(parameters, OID) {
                Some((P256, [])) if bytes.len() == 65 && bytes[0] == 4 => KeyAlgorithm::P256,
                Some((P384, [])) if bytes.len() == 97 && bytes[0] == 4 => KeyAlgorithm::P384,
                Some((P256 | P384, [])) => return unsupported("its point is not given in full"),
                _ => return unsupported("its elliptic curve is another one"),
            },
            ED25519 if parameters.is_empty() && bytes.len() == 32 => KeyAlgorithm::Ed25519,
            RSA if matches!(element(parameters, NULL), Some(([], []))) || parameters.is_empty() => {
                let bits = modulus_bits(bytes).ok_or(KeyError::Damaged)?;
                if !(2048..=8192).contains(&bits) {
                    return Err(KeyError::Unsupported(format!("RSA key of {bits} bits")));
                }
                KeyAlgorithm::Rsa
            }
            ED25519 | RSA => return Err(KeyError::Damaged),
            _ => return unsupported("its algorithm is another one"),
        };
        Ok(Self { kind, bytes: bytes.to_vec() })
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

/// The content of the element at the beginning of `der`, which must have this tag, and what follows it. Lengths are of the
/// definite form, and below 64 KiB.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => {
            let (length, rest) = rest.split_first()?;
            (usize::from(*length), rest)
        }
        0x82 => {
            let (length, rest) = rest.split_at_checked(2)?;
            (usize::from(u16::from_be_bytes([length[0], length[1]])), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// How many bits the modulus of an `RSAPublicKey` has.
fn modulus_bits(der: &[u8]) -> Option<usize> {
    let (key, rest) = element(der, SEQUENCE)?;
    let (modulus, key) = element(key, INTEGER)?;
    let (_, end) = element(key, INTEGER)?;
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    let modulus = match modulus {
        [0, rest @ ..] => rest,
        modulus => modulus,
    };
    let first = modulus.first()?;
    Some(modulus.len() * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
