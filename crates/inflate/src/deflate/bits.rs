//! The next bits of a slice. Called by what reads blocks.

/// Where bits are taken from.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    byte: usize,
    buffer: u64,
    /// How many of the buffer's bits count.
    count: u32,
}

impl<'a> Bits<'a> {
    /// The bits from this one of the slice on; `None` when there is not enough input.
    pub(super) fn at(data: &'a [u8], bit: u64) -> Option<Self> {
        let mut bits = Self { data, byte: usize::try_from(bit / 8).ok()?, buffer: 0, count: 0 };
        if !bits.refill() {
            return None;
        }
        bits.drop((bit % 8) as u32);
        Some(bits)
    }

    /// At least 56 bits; `false` when there is not enough input.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> bool {
        let Some(bytes) = self.data.get(self.byte..).and_then(<[u8]>::first_chunk) else { return false };
        self.buffer |= u64::from_le_bytes(*bytes) << self.count;
        self.byte += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
        true
    }

    /// The same, where there is input for a second time as well.
    #[inline(always)]
    pub(super) fn refill_twice(&mut self) -> bool {
        self.data.len() >= self.byte + 16 && self.refill()
    }

    /// The next so many bits, as an index.
    #[inline(always)]
    pub(super) fn look(&self, bits: u32) -> usize {
        (self.buffer & ((1 << bits) - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn take(&mut self, bits: u32) -> u64 {
        let value = self.buffer & ((1 << bits) - 1);
        self.drop(bits);
        value
    }

    #[inline(always)]
    pub(super) fn drop(&mut self, bits: u32) {
        self.buffer >>= bits;
        self.count -= bits;
    }

    /// How many are at hand.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The bit of the slice that is next.
    pub(super) fn bit(&self) -> u64 {
        self.byte as u64 * 8 - u64::from(self.count)
    }
}
