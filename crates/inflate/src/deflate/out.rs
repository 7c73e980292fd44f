//! What is decoded into: here bytes in order, after what was before them. Called by the decoder.

use super::MARGIN;
use super::block::Wrong;
use super::tables::count;

/// Copies go in chunks of so many.
pub(super) const CHUNK: usize = 16;

/// Something that is decoded into, and is handed back when that stops.
pub(crate) trait Out {
    /// Whether there is no room for what one round of the loop may write.
    fn full(&self) -> bool;
    /// The literals of an entry of the table.
    fn literals(&mut self, entry: u32);
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
    fn literals(&mut self, entry: u32) {
        put(self.out, self.at, entry);
        self.at += count(entry);
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

/// Writes an entry's literals, of which there are two at most: both places, whatever it has. There is a margin.
#[inline(always)]
pub(super) fn put(out: &mut [u8], at: usize, entry: u32) {
    if let Some(room) = out.get_mut(at..).and_then(|room| room.first_chunk_mut()) {
        *room = ((entry >> 16) as u16).to_le_bytes();
    }
}

/// Writes again what stands `distance` back. There is a margin behind it, which may be written to.
#[inline(always)]
pub(super) fn repeat(out: &mut [u8], at: usize, distance: usize, length: usize, before: &[u8]) -> Result<(), Wrong> {
    let Some(mut source) = at.checked_sub(distance) else {
        return reach_back(out, at, distance, length, before);
    };
    let end = at + length;
    let mut to = at;
    if distance >= CHUNK {
        loop {
            let Some(chunk) = out.get(source..).and_then(|part| part.first_chunk::<CHUNK>()).copied() else {
                return Err(Wrong);
            };
            let Some(place) = out.get_mut(to..).and_then(|part| part.first_chunk_mut()) else { return Err(Wrong) };
            *place = chunk;
            source += CHUNK;
            to += CHUNK;
            if to >= end {
                return Ok(());
            }
        }
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
