//! The checksum and the length that a gzip member ends with. Computed by `crc32fast`: zlib-rs's own takes three times as long,
//! a sixth of the whole decompression. Called by `gzip`.

/// The checksum and the length of all bytes so far.
#[derive(Clone, Default)]
pub(crate) struct Crc {
    hasher: crc32fast::Hasher,
    amount: u32,
}

impl Crc {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        // RFC 1952 counts the length modulo 2^32.
        self.amount = self.amount.wrapping_add(u32::try_from(bytes.len() & 0xffff_ffff).expect("32 bits"));
    }

    /// Returns the checksum.
    pub(crate) fn sum(&self) -> u32 {
        self.hasher.clone().finalize()
    }

    /// Returns the length in bytes, modulo 2^32.
    pub(crate) fn amount(&self) -> u32 {
        self.amount
    }
}
