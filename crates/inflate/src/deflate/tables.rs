//! Huffman codes of deflate as tables that are looked up by the next bits of the stream: a first table for short codes, and
//! further ones, reached through it, for the rest. An entry says all there is to do: how many bits go, and which literal,
//! base or end they mean. Which codes are good is as in zlib: complete ones, or one single code of one bit. Called by
//! the decoder when it reads a block's header.

/// Bits that the first table of literals and lengths is looked up by.
pub(super) const LITERAL_BITS: u32 = 11;
/// Bits that the first table of distances is looked up by.
pub(super) const DISTANCE_BITS: u32 = 8;
/// Room in a table of literals and lengths, and the mask of its indices; at most 2342 entries are used.
pub(super) const LITERAL_ROOM: usize = 4096;
/// Room in a table of distances; at most 402 entries are used.
pub(super) const DISTANCE_ROOM: usize = 512;

/// A literal; the byte is in bits 16 to 23.
pub(super) const LITERAL: u32 = 1 << 9;
/// Neither a literal nor a base.
pub(super) const SPECIAL: u32 = 1 << 10;
/// Special: the entry leads to another table, at the offset in bits 16 to 31, with as many bits as [`code`] says.
pub(super) const FURTHER: u32 = 1 << 11;
/// Special: the block ends.
pub(super) const END: u32 = 1 << 12;

// Of a length, bits 24 to 31 are the base less three; of a distance, bits 16 to 31 are the base.

/// How many bits of the stream go: the codes and what extra bits follow them.
#[inline(always)]
pub(super) fn total(entry: u32) -> u32 {
    entry & 31
}

/// How many of these are the codes.
#[inline(always)]
pub(super) fn code(entry: u32) -> u32 {
    (entry >> 5) & 15
}

const LENGTHS: [(u32, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// What a symbol of the literals' alphabet means, without the length of its code.
pub(super) fn literal(symbol: usize) -> u32 {
    match symbol {
        0..=255 => LITERAL | ((symbol as u32) << 16),
        256 => SPECIAL | END,
        _ => LENGTHS.get(symbol - 257).map_or(SPECIAL, |(base, extra)| ((base - 3) << 24) | extra),
    }
}

/// What a symbol of the distances' alphabet means.
pub(super) fn distance(symbol: usize) -> u32 {
    match symbol as u32 {
        symbol @ 0..=3 => (symbol + 1) << 16,
        symbol @ 4..=29 => {
            let extra = symbol / 2 - 1;
            ((((2 + symbol % 2) << extra) + 1) << 16) | extra
        }
        _ => SPECIAL,
    }
}

/// What a symbol of the alphabet of code lengths means: itself.
pub(super) fn code_length(symbol: usize) -> u32 {
    (symbol as u32) << 16
}

/// How the code lengths of a code add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Complete,
    /// One code of one bit, or none at all.
    Single,
}

/// Makes the table for codes of these lengths. `None`: they are no code, or none that may be.
pub(super) fn build(lengths: &[u8], bits: u32, table: &mut [u32], meaning: fn(usize) -> u32, lax: bool) -> Option<()> {
    let mut count = [0_u16; 16];
    for length in lengths {
        count[usize::from(*length & 15)] += 1;
    }
    count[0] = 0;
    let mut left = 1_i32;
    let mut starts = [0_u16; 17];
    for length in 1..16 {
        left = (left << 1) - i32::from(count[length]);
        if left < 0 {
            return None;
        }
        starts[length + 1] = starts[length] + count[length];
    }
    let used = usize::from(starts[16]);
    let sum = match left {
        0 => Sum::Complete,
        _ if lax && used == usize::from(count[1]) => Sum::Single,
        _ => return None,
    };
    let mut sorted = [0_u16; 320];
    let mut at = starts;
    for (symbol, length) in lengths.iter().enumerate().filter(|(_, length)| **length != 0) {
        let place = &mut at[usize::from(*length & 15)];
        sorted[usize::from(*place)] = u16::try_from(symbol).ok()?;
        *place += 1;
    }
    let first = 1_usize << bits;
    if sum == Sum::Single {
        table[..first].fill(SPECIAL);
    }
    fill(&sorted[..used], &count, bits, table, meaning)
}

/// Puts the codes into the table, in the order of their lengths.
fn fill(sorted: &[u16], count: &[u16; 16], bits: u32, table: &mut [u32], meaning: fn(usize) -> u32) -> Option<()> {
    let mut symbols = sorted.iter();
    // The code, with its first bit in the lowest place, as it stands in the stream.
    let mut code = 0_usize;
    let (mut next, mut prefix, mut further, mut further_bits) = (1_usize << bits, usize::MAX, 0_usize, 0_u32);
    for length in 1..16_u32 {
        for taken in 0..count[length as usize] {
            let meant = meaning(usize::from(*symbols.next()?));
            if length <= bits {
                let entry = entry(meant, length);
                for place in table[..1 << bits].iter_mut().skip(code).step_by(1 << length) {
                    *place = entry;
                }
            } else {
                let low = code & ((1 << bits) - 1);
                if low != prefix {
                    // A table of its own for all codes that begin so: as large as it takes to hold them.
                    prefix = low;
                    further = next;
                    further_bits = length - bits;
                    let mut room = 1_i32 << further_bits;
                    room -= i32::from(count[length as usize] - taken);
                    while room > 0 && further_bits + bits < 15 {
                        further_bits += 1;
                        room = (room << 1) - i32::from(count[(further_bits + bits) as usize]);
                    }
                    next += 1 << further_bits;
                    *table.get_mut(low)? =
                        SPECIAL | FURTHER | u32::try_from(further << 16).ok()? | (further_bits << 5) | bits;
                }
                let entry = entry(meant, length - bits);
                let part = table.get_mut(further..further + (1 << further_bits))?;
                for place in part.iter_mut().skip(code >> bits).step_by(1 << (length - bits)) {
                    *place = entry;
                }
            }
            // Adds one at the other end.
            let mut bit = 1_usize << (length - 1);
            while code & bit != 0 {
                bit >>= 1;
            }
            code = if bit == 0 { 0 } else { (code & (bit - 1)) | bit };
        }
    }
    Some(())
}

/// A meaning with the length of its code: extra bits are counted in.
fn entry(meant: u32, length: u32) -> u32 {
    if meant & (LITERAL | SPECIAL) != 0 { meant | length } else { meant + length + (length << 5) }
}
