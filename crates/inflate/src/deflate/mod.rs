//! Deflate (RFC 1951), decoded from any block on. Three things set it apart from the backends for whole streams: it knows the
//! bit that it stands at, it can be stopped after any symbol and go on elsewhere, and it can begin without the window: it
//! then writes markers, each of which names a place of the window, where bytes from before would stand. It knows nothing of
//! gzip, and does nothing by itself. Called by `parallel`.
//!
//! It wants some bytes behind what it is to decode: whoever has the end of the stream appends [`PADDING`] zeros.
#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of wider words all over, each after a mask or shift"
)]

mod search;
mod tables;

pub(crate) use search::search;

use tables::{
    DISTANCE_BITS, DISTANCE_ROOM, END, FURTHER, LITERAL, LITERAL_BITS, LITERAL_ROOM, SPECIAL, build, code_length,
    distance, literal,
};

/// How far back a match can reach.
pub(crate) const WINDOW: usize = 32 * 1024;
/// Bytes behind the end of the stream with which everything before them is decoded.
pub(crate) const PADDING: usize = 512;
/// Room that the decoder wants for going on at all: the longest match, and what a copy in whole chunks writes behind it.
pub(crate) const MARGIN: usize = 258 + 32;

/// The longest header of a block, and a bit more.
const HEADER: usize = 384;
/// Copies go in chunks of so many.
const CHUNK: usize = 16;

/// What is decoded into: bytes, or bytes and markers.
pub(crate) trait Symbol: Copy + From<u8> {
    /// What was before the output.
    type Before: ?Sized;
    /// What stands so far (1 to [`WINDOW`]) before the output.
    fn before(before: &Self::Before, back: usize) -> Option<Self>;
}

impl Symbol for u8 {
    type Before = [u8];

    fn before(before: &[u8], back: usize) -> Option<u8> {
        before.get(before.len().checked_sub(back)?).copied()
    }
}

/// The lowest marker: the place that is [`WINDOW`] before the output.
pub(crate) const MARKER: u16 = 0x8000;

impl Symbol for u16 {
    type Before = ();

    fn before((): &(), back: usize) -> Option<u16> {
        u16::try_from(WINDOW.checked_sub(back)?).ok().map(|place| MARKER | place)
    }
}

/// Where a decoder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Before a block.
    Block,
    /// Within a block of codes.
    Codes { last: bool },
    /// Within a stored block.
    Stored { last: bool, left: usize },
    /// Behind the last block.
    End,
}

/// Why a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It stands before a block.
    Block,
    /// It stands behind the last block.
    End,
    /// It wants more input.
    Input,
    /// It wants more room.
    Room,
}

/// This is no deflate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong;

/// A decoder somewhere in a stream.
pub(crate) struct Decoder {
    at: At,
    /// The bit of the stream, counted from its beginning.
    bit: u64,
    literals: Box<[u32; LITERAL_ROOM]>,
    distances: Box<[u32; DISTANCE_ROOM]>,
}

/// The next bits of a slice.
struct Bits<'a> {
    data: &'a [u8],
    byte: usize,
    buffer: u64,
    /// How many of the buffer's bits count.
    count: u32,
}

impl Bits<'_> {
    /// At least 56 bits; `false` when there is not enough input.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Some(bytes) = self.data.get(self.byte..).and_then(<[u8]>::first_chunk) else { return false };
        self.buffer |= u64::from_le_bytes(*bytes) << self.count;
        self.byte += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
        true
    }

    #[inline(always)]
    fn take(&mut self, bits: u32) -> u64 {
        let value = self.buffer & ((1 << bits) - 1);
        self.drop(bits);
        value
    }

    #[inline(always)]
    fn drop(&mut self, bits: u32) {
        self.buffer >>= bits;
        self.count -= bits;
    }

    fn bit(&self) -> u64 {
        self.byte as u64 * 8 - u64::from(self.count)
    }
}

impl Decoder {
    /// A decoder that stands before the block at this bit.
    pub(crate) fn new(bit: u64) -> Self {
        Self { at: At::Block, bit, literals: Box::new([0; LITERAL_ROOM]), distances: Box::new([0; DISTANCE_ROOM]) }
    }

    pub(crate) fn at(&self) -> At {
        self.at
    }

    pub(crate) fn bit(&self) -> u64 {
        self.bit
    }

    /// Stands before the block at this bit instead.
    pub(crate) fn place(&mut self, bit: u64) {
        self.at = At::Block;
        self.bit = bit;
    }

    /// Whether what stands at this bit, which is none of the last block, is the header of a block with codes of its own.
    fn begins(&mut self, data: &[u8], base: u64, bit: u64) -> bool {
        self.place(bit);
        let Some(ahead) = bit.checked_sub(base * 8) else { return false };
        let Ok(byte) = usize::try_from(ahead / 8) else { return false };
        let mut bits = Bits { data, byte, buffer: 0, count: 0 };
        if data.len() < byte + HEADER || !bits.refill() {
            return false;
        }
        bits.drop((ahead % 8) as u32 + 3);
        self.dynamic(&mut bits).is_some()
    }

    /// Goes on, up to the end of the block at most. `data` is the stream from byte `base` on; `out` is filled from `from` on,
    /// after what is in it and, further back, in `before`. Answers how far `out` is filled, and why it stopped.
    pub(crate) fn decode<T: Symbol>(
        &mut self,
        data: &[u8],
        base: u64,
        out: &mut [T],
        from: usize,
        before: &T::Before,
    ) -> Result<(usize, Stop), Wrong> {
        let Some(ahead) = self.bit.checked_sub(base * 8) else { return Ok((from, Stop::Input)) };
        let Ok(byte) = usize::try_from(ahead / 8) else { return Ok((from, Stop::Input)) };
        let mut bits = Bits { data, byte, buffer: 0, count: 0 };
        if !bits.refill() {
            return Ok((from, Stop::Input));
        }
        bits.drop((ahead % 8) as u32);
        if self.at == At::Block {
            if data.len() - byte < HEADER {
                return Ok((from, Stop::Input));
            }
            self.header(&mut bits).ok_or(Wrong)?;
            self.bit = base * 8 + bits.bit();
        }
        let (filled, stop) = match self.at {
            At::Codes { last } => {
                let (filled, stop) = self.codes(&mut bits, out, from, before)?;
                self.bit = base * 8 + bits.bit();
                (filled, self.ended(stop, last))
            }
            At::Stored { last, left } => {
                let start = usize::try_from(self.bit / 8 - base).map_err(|_| Wrong)?;
                let n = left.min(out.len() - from).min(data.len().saturating_sub(start));
                for (to, byte) in out[from..from + n].iter_mut().zip(&data[start..start + n]) {
                    *to = T::from(*byte);
                }
                self.bit += n as u64 * 8;
                self.at = At::Stored { last, left: left - n };
                let stop = match (left - n, out.len() - from - n) {
                    (0, _) => Stop::Block,
                    (_, 0) => Stop::Room,
                    _ => Stop::Input,
                };
                (from + n, self.ended(stop, last))
            }
            At::Block | At::End => (from, Stop::End),
        };
        Ok((filled, stop))
    }

    fn ended(&mut self, stop: Stop, last: bool) -> Stop {
        if stop != Stop::Block {
            return stop;
        }
        self.at = if last { At::End } else { At::Block };
        if last { Stop::End } else { Stop::Block }
    }

    /// Reads a block's header. There is enough input.
    fn header(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        bits.refill();
        let last = bits.take(1) == 1;
        match bits.take(2) {
            0 => {
                bits.drop(bits.count % 8);
                bits.refill();
                let (length, inverse) = (bits.take(16), bits.take(16));
                if length ^ inverse != 0xffff {
                    return None;
                }
                // Whole bytes that were read ahead are read again, as content.
                self.at = At::Stored { last, left: usize::try_from(length).ok()? };
            }
            1 => {
                let mut lengths = [8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                build(&lengths, LITERAL_BITS, &mut self.literals[..], literal, false)?;
                build(&[5; 32], DISTANCE_BITS, &mut self.distances[..], distance, false)?;
                self.at = At::Codes { last };
            }
            2 => {
                self.dynamic(bits)?;
                self.at = At::Codes { last };
            }
            _ => return None,
        }
        Some(())
    }

    fn dynamic(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let literals = usize::try_from(bits.take(5)).ok()? + 257;
        let distances = usize::try_from(bits.take(5)).ok()? + 1;
        let given = usize::try_from(bits.take(4)).ok()? + 4;
        if literals > 286 || distances > 30 {
            return None;
        }
        let mut lengths = [0_u8; 19];
        for symbol in &ORDER[..given] {
            bits.refill();
            lengths[*symbol] = u8::try_from(bits.take(3)).ok()?;
        }
        let mut table = [0_u32; 128];
        build(&lengths, 7, &mut table, code_length, false)?;
        let mut lengths = [0_u8; 320];
        let mut at = 0;
        while at < literals + distances {
            if !bits.refill() {
                return None;
            }
            let entry = table[(bits.buffer & 127) as usize];
            bits.drop(entry & 15);
            let (value, times) = match entry >> 16 {
                16 => (*lengths.get(at.checked_sub(1)?)?, 3 + bits.take(2)),
                17 => (0, 3 + bits.take(3)),
                18 => (0, 11 + bits.take(7)),
                length => (u8::try_from(length).ok()?, 1),
            };
            let end = at + usize::try_from(times).ok()?;
            if end > literals + distances {
                return None;
            }
            lengths[at..end].fill(value);
            at = end;
        }
        // A block without an end is none.
        if lengths[256] == 0 {
            return None;
        }
        build(&lengths[..literals], LITERAL_BITS, &mut self.literals[..], literal, true)?;
        build(&lengths[literals..literals + distances], DISTANCE_BITS, &mut self.distances[..], distance, true)
    }

    /// The loop that everything else is for.
    fn codes<T: Symbol>(
        &self,
        bits: &mut Bits<'_>,
        out: &mut [T],
        from: usize,
        before: &T::Before,
    ) -> Result<(usize, Stop), Wrong> {
        const FIRST: u64 = (1 << LITERAL_BITS) - 1;
        const FIRST_DISTANCE: u64 = (1 << DISTANCE_BITS) - 1;
        let (literals, distances) = (&*self.literals, &*self.distances);
        let limit = out.len().saturating_sub(MARGIN);
        let mut at = from;
        let mut local = Bits { data: bits.data, byte: bits.byte, buffer: bits.buffer, count: bits.count };
        let stop = loop {
            if at >= limit {
                break Stop::Room;
            }
            // Twice as much as one look takes, for the second look below.
            if local.data.len() < local.byte + 16 || !local.refill() {
                break Stop::Input;
            }
            let mut entry = literals[(local.buffer & FIRST) as usize];
            if entry & LITERAL != 0 {
                // 56 bits hold three short codes and what comes after.
                local.drop(entry & 0xff);
                out[at] = T::from((entry >> 16) as u8);
                at += 1;
                entry = literals[(local.buffer & FIRST) as usize];
                if entry & LITERAL != 0 {
                    local.drop(entry & 0xff);
                    out[at] = T::from((entry >> 16) as u8);
                    at += 1;
                    entry = literals[(local.buffer & FIRST) as usize];
                    if entry & LITERAL != 0 {
                        local.drop(entry & 0xff);
                        out[at] = T::from((entry >> 16) as u8);
                        at += 1;
                        continue;
                    }
                }
            }
            if entry & SPECIAL != 0 {
                if entry & FURTHER != 0 {
                    local.drop(LITERAL_BITS);
                    let index = (entry >> 16) as usize + (local.buffer & ((1 << ((entry >> 8) & 15)) - 1)) as usize;
                    entry = literals[index & (LITERAL_ROOM - 1)];
                    if entry & LITERAL != 0 {
                        local.drop(entry & 0xff);
                        out[at] = T::from((entry >> 16) as u8);
                        at += 1;
                        continue;
                    }
                }
                if entry & SPECIAL != 0 {
                    if entry & END == 0 {
                        return Err(Wrong);
                    }
                    local.drop(entry & 0xff);
                    break Stop::Block;
                }
            }
            let code = local.buffer & ((1 << (entry & 0xff)) - 1);
            let length = ((entry >> 16) as usize) + (code >> ((entry >> 8) & 31)) as usize;
            local.drop(entry & 0xff);
            local.refill();
            let mut entry = distances[(local.buffer & FIRST_DISTANCE) as usize];
            if entry & SPECIAL != 0 {
                if entry & FURTHER == 0 {
                    return Err(Wrong);
                }
                local.drop(DISTANCE_BITS);
                let index = (entry >> 16) as usize + (local.buffer & ((1 << ((entry >> 8) & 15)) - 1)) as usize;
                entry = distances[index & (DISTANCE_ROOM - 1)];
                if entry & SPECIAL != 0 {
                    return Err(Wrong);
                }
            }
            let code = local.buffer & ((1 << (entry & 0xff)) - 1);
            let distance = ((entry >> 16) as usize) + (code >> ((entry >> 8) & 31)) as usize;
            local.drop(entry & 0xff);
            repeat(out, at, distance, length, before)?;
            at += length;
        };
        *bits = local;
        Ok((at, stop))
    }
}

/// Writes again what stands `distance` back. There is a margin behind it, which may be written to.
#[inline(always)]
fn repeat<T: Symbol>(
    out: &mut [T],
    at: usize,
    distance: usize,
    length: usize,
    before: &T::Before,
) -> Result<(), Wrong> {
    let Some(mut source) = at.checked_sub(distance) else {
        return reach_back(out, at, distance, length, before);
    };
    let end = at + length;
    let mut to = at;
    if distance >= CHUNK {
        while to < end {
            let Some(chunk) = out.get(source..).and_then(|part| part.first_chunk::<CHUNK>()).copied() else {
                return Err(Wrong);
            };
            let Some(place) = out.get_mut(to..).and_then(|part| part.first_chunk_mut::<CHUNK>()) else {
                return Err(Wrong);
            };
            *place = chunk;
            source += CHUNK;
            to += CHUNK;
        }
    } else if distance == 1 {
        let value = out[source];
        out[at..end].fill(value);
    } else {
        for to in at..end {
            out[to] = out[to - distance];
        }
    }
    Ok(())
}

/// A match that begins before the output.
#[cold]
#[inline(never)]
fn reach_back<T: Symbol>(
    out: &mut [T],
    at: usize,
    distance: usize,
    length: usize,
    before: &T::Before,
) -> Result<(), Wrong> {
    let back = distance - at;
    for i in 0..length {
        out[at + i] = if i < back { T::before(before, back - i).ok_or(Wrong)? } else { out[i - back] };
    }
    Ok(())
}
