//! [`Digest`]: `algorithm:hex`, checked when it is made, so that it can be put into a path or a URL without another
//! check. Also the hasher and the verifier for streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::grammar::{is_digest_text, is_lower_hex};

/// The digest algorithms that images use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256, the usual one.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The name as it stands before the colon.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The number of hex digits after the colon.
    #[must_use]
    pub fn hex_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha384, Self::Sha512].into_iter().find(|a| a.as_str() == name)
    }

    /// A hasher that starts empty.
    #[must_use]
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Self::Sha384 => Hasher::Sha384(sha2::Sha384::new()),
            Self::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
        }
    }

    /// The digest of bytes at hand.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }
}

/// The reason why a text is no digest, in the words of other implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Not of the form `algorithm:hex`, or the hex has upper-case or foreign characters.
    #[error("invalid checksum digest format")]
    Format,
    /// The number of hex digits does not fit the algorithm.
    #[error("invalid checksum digest length")]
    Length,
    /// An algorithm other than sha256, sha384 and sha512.
    #[error("unsupported digest algorithm")]
    Unsupported,
}

/// A checked digest, for example `sha256:9f86d0…`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

impl Digest {
    /// The SHA-256 digest of `bytes`.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Algorithm::Sha256.digest(bytes)
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hex digits, lower case, without the algorithm.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// Checks a digest without making one.
    pub(crate) fn check(text: &str) -> Result<(), DigestError> {
        split(text).map(|_| ())
    }

    /// The first twelve hex digits, for tables that people read.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.hex[..12]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = split(text)?;
        Ok(Self { algorithm, hex: hex.into() })
    }
}

/// The algorithm and the hex digits of a digest's text.
fn split(text: &str) -> Result<(Algorithm, &str), DigestError> {
    let (name, hex) = text.split_once(':').ok_or(DigestError::Format)?;
    if name.is_empty() || hex.is_empty() {
        return Err(DigestError::Format);
    }
    let Some(algorithm) = Algorithm::from_name(name) else {
        return Err(if is_digest_text(text) { DigestError::Unsupported } else { DigestError::Format });
    };
    if hex.len() != algorithm.hex_len() {
        return Err(DigestError::Length);
    }
    if !is_lower_hex(hex) {
        return Err(DigestError::Format);
    }
    Ok((algorithm, hex))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| serde::de::Error::custom(format_args!("{e}: {text:?}")))
    }
}

/// A running hash. Feed it in pieces of 128 KiB or more, and not on an async worker thread.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// SHA-256.
    Sha256(sha2::Sha256),
    /// SHA-384.
    Sha384(sha2::Sha384),
    /// SHA-512.
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(h) => h.update(bytes),
            Self::Sha384(h) => h.update(bytes),
            Self::Sha512(h) => h.update(bytes),
        }
    }

    /// The digest of all that was taken in.
    #[must_use]
    pub fn finish(self) -> Digest {
        let (algorithm, hex) = match self {
            Self::Sha256(h) => (Algorithm::Sha256, hex::encode(h.finalize())),
            Self::Sha384(h) => (Algorithm::Sha384, hex::encode(h.finalize())),
            Self::Sha512(h) => (Algorithm::Sha512, hex::encode(h.finalize())),
        };
        Digest { algorithm, hex: hex.into() }
    }
}

/// A mismatch between content and descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// More bytes came than the descriptor says.
    #[error("more than the {expected} bytes of the descriptor of {digest}")]
    TooLong {
        /// Digest of the blob.
        digest: Digest,
        /// Bytes that were expected.
        expected: u64,
    },
    /// Fewer bytes came than the descriptor says.
    #[error("{got} bytes instead of the {expected} of the descriptor of {digest}")]
    TooShort {
        /// Digest of the blob.
        digest: Digest,
        /// Bytes that were expected.
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The bytes hash to something else.
    #[error("digest mismatch: expected {expected}, got {got}")]
    Mismatch {
        /// The digest that was promised.
        expected: Digest,
        /// The digest of the bytes that came.
        got: Digest,
    },
}

/// Checks size and digest of a stream while it passes.
#[derive(Debug)]
pub struct Verifier {
    expected: Digest,
    size: u64,
    seen: u64,
    hasher: Hasher,
}

impl Verifier {
    /// A verifier for a blob of exactly `size` bytes with this digest.
    #[must_use]
    pub fn new(expected: Digest, size: u64) -> Self {
        let hasher = expected.algorithm().hasher();
        Self { expected, size, seen: 0, hasher }
    }

    /// Takes in more bytes; fails as soon as there are too many.
    ///
    /// # Errors
    /// [`VerifyError::TooLong`].
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), VerifyError> {
        self.seen += bytes.len() as u64;
        if self.seen > self.size {
            return Err(VerifyError::TooLong { digest: self.expected.clone(), expected: self.size });
        }
        self.hasher.update(bytes);
        Ok(())
    }

    /// Bytes taken in so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The verdict at the end of the stream.
    ///
    /// # Errors
    /// [`VerifyError::TooShort`] or [`VerifyError::Mismatch`].
    pub fn finish(self) -> Result<Digest, VerifyError> {
        if self.seen < self.size {
            return Err(VerifyError::TooShort { digest: self.expected, expected: self.size, got: self.seen });
        }
        let got = self.hasher.finish();
        if got != self.expected {
            return Err(VerifyError::Mismatch { expected: self.expected, got });
        }
        Ok(got)
    }
}

/// The chain id of a stack of layers after one more layer is put on it (image specification, "Layer ChainID"):
/// the first layer's diff id, then `sha256(parent + " " + diff_id)`.
#[must_use]
pub fn chain_id(parent: Option<&Digest>, diff_id: &Digest) -> Digest {
    match parent {
        None => diff_id.clone(),
        Some(parent) => Digest::sha256(format!("{parent} {diff_id}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn forms() {
        let hex32 = "0123456789abcdef0123456789abcdef";
        let cases: Vec<(String, Result<(), DigestError>)> = vec![
            (EMPTY.into(), Ok(())),
            (format!("sha384:{}", "a".repeat(96)), Ok(())),
            (format!("sha512:{}", "0".repeat(128)), Ok(())),
            (String::new(), Err(DigestError::Format)),
            ("sha256:".into(), Err(DigestError::Format)),
            (":abc".into(), Err(DigestError::Format)),
            ("sha256:abc".into(), Err(DigestError::Length)),
            (EMPTY.to_uppercase().replace("SHA", "sha"), Err(DigestError::Format)),
            (format!("sha256:{}g", "a".repeat(63)), Err(DigestError::Format)),
            (format!("sha1:{hex32}"), Err(DigestError::Unsupported)),
            (format!("blake3+x:{hex32}"), Err(DigestError::Unsupported)),
            (format!("../x:{hex32}"), Err(DigestError::Format)),
            ("md5:abc".into(), Err(DigestError::Format)),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Digest>().map(|_| ()), want, "{text}");
        }
    }

    #[test]
    fn hashes_known_texts() {
        assert_eq!(Digest::sha256(b"").to_string(), EMPTY);
        assert!(Algorithm::Sha512.digest(b"abc").hex().starts_with("ddaf35a193617aba"));
        assert!(Algorithm::Sha384.digest(b"abc").hex().starts_with("cb00753f45a35e8b"));
    }

    #[test]
    fn verifier_finds_every_fault() {
        let digest = Digest::sha256(b"hello");
        let mut v = Verifier::new(digest.clone(), 5);
        v.update(b"hel").expect("fits");
        v.update(b"lo").expect("fits");
        assert_eq!(v.finish(), Ok(digest.clone()));

        let mut v = Verifier::new(digest.clone(), 5);
        assert!(matches!(v.update(b"hello!"), Err(VerifyError::TooLong { .. })));
        let mut v = Verifier::new(digest.clone(), 5);
        v.update(b"hell").expect("fits");
        assert!(matches!(v.finish(), Err(VerifyError::TooShort { got: 4, .. })));
        let mut v = Verifier::new(digest, 5);
        v.update(b"jello").expect("fits");
        assert!(matches!(v.finish(), Err(VerifyError::Mismatch { .. })));
    }

    #[test]
    fn chain_of_two() {
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        assert_eq!(chain_id(None, &a), a);
        assert_eq!(chain_id(Some(&a), &b), Digest::sha256(format!("{a} {b}").as_bytes()));
    }
}
