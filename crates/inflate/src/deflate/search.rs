//! Where a block could begin: a header of a block with codes of its own, found by what hardly any other bits look like. A stored
//! block, one with the fixed codes, or the last one, is not looked for: bits say too little of those, and between them and
//! the next good one little is lost. What is found may be wrong all the same; whoever begins there must see whether the
//! blocks before end there. Called by the jobs of `parallel`.

use super::Decoder;

/// Codes of the lengths that four values of three bits name, in units of a 128th of all codes.
const SUMS: [u16; 4096] = {
    let mut sums = [0; 4096];
    let mut index = 0;
    while index < sums.len() {
        let mut rest = index;
        while rest > 0 {
            if rest & 7 > 0 {
                sums[index] += 128 >> (rest & 7);
            }
            rest >>= 3;
        }
        index += 1;
    }
    sums
};

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
    let (mut bit, end) = (usize::try_from(from - base * 8).ok()?, usize::try_from(end - base * 8).ok()?);
    while bit < end {
        let byte = bit / 8;
        // Some sixteen bits beyond what eight positions look at.
        let bytes = data.get(byte..).and_then(<[u8]>::first_chunk::<16>)?;
        let bits = u128::from_le_bytes(*bytes);
        let first = bytes[0] as u32 | (bytes[1] as u32) << 8;
        for offset in bit % 8..8 {
            if (first >> offset) & 7 == 4 && plausible(bits >> offset) {
                let bit = base * 8 + (byte * 8 + offset) as u64;
                if decoder.begins(data, base, bit) {
                    return (bit < base * 8 + end as u64).then_some(bit);
                }
            }
        }
        bit = byte * 8 + 8;
        if byte % 4096 == 0 && stop() {
            return None;
        }
    }
    None
}

/// Not the last block, codes of its own, no more codes than there are, and lengths that make a code.
#[inline(always)]
fn plausible(bits: u128) -> bool {
    let low = bits as u32;
    if low & 7 != 4 || (low >> 3) & 31 > 29 || (low >> 8) & 31 > 29 {
        return false;
    }
    let given = ((low >> 13) & 15) + 4;
    let lengths = (bits >> 17) as u64 & ((1 << (3 * given)) - 1);
    let sum = |at: u32| SUMS[(lengths >> at) as usize & 4095];
    sum(0) + sum(12) + sum(24) + sum(36) + sum(48) == 128
}
