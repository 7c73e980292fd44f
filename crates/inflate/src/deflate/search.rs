//! Where a block could begin: a header of a block with codes of its own, found by what hardly any other bits look like. A stored
//! block, one with the fixed codes, or the last one, is not looked for: bits say too little of those, and between them and
//! the next good one little is lost. What is found may be wrong all the same; whoever begins there must see whether the
//! blocks before end there. Called by helpers.

use super::block::Decoder;

/// Codes of the lengths that four values of three bits name, in units of a 128th of all codes; 255 for more than all.
const SUMS: [u8; 4096] = {
    let mut sums = [0; 4096];
    let mut index = 0;
    while index < sums.len() {
        let (mut rest, mut sum) = (index, 0);
        while rest > 0 {
            if rest & 7 > 0 {
                sum += 128 >> (rest & 7);
            }
            rest >>= 3;
        }
        sums[index] = if sum > 128 { 255 } else { sum as u8 };
        index += 1;
    }
    sums
};

/// So many bits are looked at together; the widest pattern takes thirteen bits more.
const TOGETHER: u64 = 48;
/// So many headers are read at most that turn out to be none; where there are more, somebody made them.
const TRIES: usize = 16 * 1024;

/// The first bit from `from` on and before `end` at which a block could begin: the decoder then stands there. `data` is the
/// stream from byte `base` on. `None` as well when `stop` says so.
pub(crate) fn search(
    decoder: &mut Decoder,
    data: &[u8],
    base: u64,
    from: u64,
    end: u64,
    stop: &dyn Fn() -> bool,
) -> Option<u64> {
    let (from, end) = (from - base * 8, end - base * 8);
    // By whole bytes; what is before the first bit is not looked at.
    let mut start = from / 8 * 8;
    let (mut looked, mut tries) = (0_u32, 0);
    while start < end {
        let byte = usize::try_from(start / 8).ok()?;
        let word = u64::from_le_bytes(*data.get(byte..).and_then(<[u8]>::first_chunk)?);
        let mut likely = likely(word) & ((1 << TOGETHER) - 1);
        if start < from {
            likely &= u64::MAX << (from - start);
        }
        while likely != 0 {
            let bit = start + u64::from(likely.trailing_zeros());
            likely &= likely - 1;
            if bit >= end {
                return None;
            }
            if !complete(data, bit)? {
                continue;
            }
            if decoder.begins(data, base, base * 8 + bit) {
                return Some(base * 8 + bit);
            }
            tries += 1;
            if tries == TRIES || stop() {
                return None;
            }
        }
        start += TOGETHER;
        looked += 1;
        if looked.is_multiple_of(1024) && stop() {
            return None;
        }
    }
    None
}

/// The bits of a word from which on it says: not the last block, codes of its own, and no more codes than there are.
#[inline(always)]
fn likely(word: u64) -> u64 {
    let at = |shift: u32| word >> shift;
    let kind = !word & !at(1) & at(2);
    // Thirty or more: the upper four of five bits are set.
    let literals = at(4) & at(5) & at(6) & at(7);
    let distances = at(9) & at(10) & at(11) & at(12);
    kind & !literals & !distances
}

/// Whether the lengths of the code that the other codes' lengths are written in make a whole code.
#[inline(always)]
fn complete(data: &[u8], bit: u64) -> Option<bool> {
    let bytes = data.get(usize::try_from(bit / 8).ok()?..).and_then(<[u8]>::first_chunk::<16>)?;
    let bits = u128::from_le_bytes(*bytes) >> (bit % 8);
    let given = ((bits >> 13) as u32 & 15) + 4;
    let lengths = (bits >> 17) as u64 & ((1 << (3 * given)) - 1);
    let sum = |at: u32| u32::from(SUMS[(lengths >> at) as usize & 4095]);
    Some(sum(0) + sum(12) + sum(24) + sum(36) + sum(48) == 128)
}
