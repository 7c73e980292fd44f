//! [`FastHash`]: hashes image ids quickly. They are digests, which nobody can choose well; what is mixed in differs in every
//! process, so that nobody can choose them for it either.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers for maps whose keys are image ids, or other text.
#[derive(Clone, Debug)]
pub(super) struct FastHash {
    seeds: [u64; 2],
}

impl Default for FastHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self { seeds: [random.hash_one(0) | 1, random.hash_one(1)] }
    }
}

impl FastHash {
    /// Hash of a text: of an image id sixteen of its digits are enough, of any other text all of it counts.
    pub(super) fn of(&self, text: &[u8]) -> u64 {
        let [first, second] = self.seeds;
        if is_id(text) {
            return fold(word(&text[8..16]) ^ first, word(&text[16..24]) ^ second);
        }
        let hash = text.chunks(8).fold(second, |hash, chunk| fold(hash ^ word(chunk), first));
        fold(hash ^ text.len() as u64, first)
    }
}

/// Whether a text has the form of an image id, `sha256:` and 64 digits, as far as a look at its beginning tells.
pub(super) fn is_id(text: &[u8]) -> bool {
    text.len() == 71 && text.starts_with(b"sha256:")
}

/// Up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    if let Ok(whole) = bytes.try_into() {
        return u64::from_le_bytes(whole);
    }
    bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

impl BuildHasher for FastHash {
    type Hasher = TextHasher;

    fn build_hasher(&self) -> TextHasher {
        TextHasher { seeds: self.clone(), hash: 0 }
    }
}

/// See [`FastHash`].
#[derive(Debug)]
pub(super) struct TextHasher {
    seeds: FastHash,
    hash: u64,
}

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.hash = self.hash.rotate_left(5) ^ self.seeds.of(bytes);
    }

    fn write_u8(&mut self, _end_of_text: u8) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_hash_differently() {
        let hash = FastHash::default();
        let mut seen = HashSet::new();
        for number in 0..20_000_u32 {
            let digits = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
            let digest = format!("sha256:{digits:032x}{number:032x}");
            assert!(seen.insert(hash.of(digest.as_bytes())), "{digest}");
            assert!(seen.insert(hash.of(format!("registry.example/{number}").as_bytes())), "{number}");
        }
        assert_ne!(hash.of(b""), hash.of(b"\0"));
        assert_ne!(FastHash::default().of(b"a"), hash.of(b"a"), "differs in every map");
        assert_eq!(hash.hash_one("a"), hash.hash_one("a"));
    }
}
