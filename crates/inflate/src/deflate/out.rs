//! What is decoded into: here bytes in order, after what was before them. Called by the decoder.

use super::MARGIN;
use super::block::Wrong;

/// Copies go in chunks of so many, and where that is too many in little ones.
const CHUNK: usize = 32;
pub(super) const LITTLE: usize = 16;

/// Something that is decoded into, and is handed back when that stops.
pub(crate) trait Out {
    /// Whether there is no room for what one round of the loop may write.
    fn full(&self) -> bool;
    /// A literal.
    fn literal(&mut self, byte: u8);
    /// A match.
    fn again(&mut self, distance: usize, length: usize) -> Result<(), Wrong>;
    /// Bytes of a stored block: as many as there is room for.
    fn stored(&mut self, bytes: &[u8]) -> usize;
}

/// Bytes in order.
pub(crate) struct Plain<'a> {
    out: &'a mut [u8],
    at: usize,
    /// From here on there is no room for a round.
    limit: usize,
    /// What was before the first of them.
    before: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Goes on at this place of `out`. What was before its beginning ends `before`.
    pub(crate) fn new(out: &'a mut [u8], at: usize, before: &'a [u8]) -> Self {
        let limit = out.len().saturating_sub(MARGIN);
        Self { out, at, limit, before }
    }

    /// How far it is filled.
    pub(crate) fn at(&self) -> usize {
        self.at
    }
}

impl Out for Plain<'_> {
    #[inline(always)]
    fn full(&self) -> bool {
        self.at >= self.limit
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    #[inline(always)]
    fn again(&mut self, distance: usize, length: usize) -> Result<(), Wrong> {
        repeat(self.out, self.at, distance, length, self.before)?;
        self.at += length;
        Ok(())
    }

    fn stored(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.out[self.at..];
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.at += n;
        n
    }
}

/// Writes again what stands `distance` back. There is a margin behind it, which may be written to.
#[inline(always)]
pub(super) fn repeat(out: &mut [u8], at: usize, distance: usize, length: usize, before: &[u8]) -> Result<(), Wrong> {
    let Some(mut source) = at.checked_sub(distance) else {
        return reach_back(out, at, distance, length, before);
    };
    let (mut to, end) = (at, at + length);
    if distance >= CHUNK {
        while to < end {
            copy::<CHUNK>(out, source, to)?;
            source += CHUNK;
            to += CHUNK;
        }
        return Ok(());
    }
    if distance >= LITTLE {
        while to < end {
            copy::<LITTLE>(out, source, to)?;
            source += LITTLE;
            to += LITTLE;
        }
        return Ok(());
    }
    if distance == 1 {
        let value = out[source];
        out[at..end].fill(value);
    } else {
        for to in at..end {
            out[to] = out[to - distance];
        }
    }
    Ok(())
}

#[inline(always)]
fn copy<const N: usize>(out: &mut [u8], from: usize, to: usize) -> Result<(), Wrong> {
    let chunk: [u8; N] = *out.get(from..).and_then(<[u8]>::first_chunk).ok_or(Wrong)?;
    *out.get_mut(to..).and_then(<[u8]>::first_chunk_mut).ok_or(Wrong)? = chunk;
    Ok(())
}

/// A match that begins before the output.
#[cold]
#[inline(never)]
fn reach_back(out: &mut [u8], at: usize, distance: usize, length: usize, before: &[u8]) -> Result<(), Wrong> {
    let back = distance - at;
    let from = before.len().checked_sub(back).ok_or(Wrong)?;
    let n = length.min(back);
    out[at..at + n].copy_from_slice(&before[from..from + n]);
    // What is left begins where the output does.
    for i in n..length {
        out[at + i] = out[i - back];
    }
    Ok(())
}
