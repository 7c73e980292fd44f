//! [`Blobs`]: bytes that are put aside and read again, those of directories' extended attributes. The first ones go to the spill
//! when there are too many.

use super::error::WriteError;
use super::spill::Spill;

/// Bytes of a piece, but for its last blob.
const PIECE: usize = 64 << 10;

/// Bytes by place.
pub(super) struct Blobs {
    pieces: Vec<BlobPiece>,
    in_memory: usize,
    /// The first piece that may be in memory.
    oldest: usize,
    budget: usize,
    last: (u64, u32),
}

enum BlobPiece {
    Memory(Vec<u8>),
    Spilled(u64),
}

impl Blobs {
    pub(super) fn new(budget: usize) -> Self {
        Self { pieces: Vec::new(), in_memory: 0, oldest: 0, budget, last: (0, 0) }
    }

    /// Keeps bytes. Those that are the same as the last ones are not kept twice.
    pub(super) fn put(&mut self, bytes: &[u8], spill: &mut Spill) -> Result<(u64, u32), WriteError> {
        let length = u32::try_from(bytes.len()).expect("attributes of one inode");
        if length == 0 {
            return Ok((0, 0));
        }
        if self.last.1 == length && self.in_piece(self.last).is_some_and(|last| last == bytes) {
            return Ok(self.last);
        }
        if !matches!(self.pieces.last(), Some(BlobPiece::Memory(piece)) if piece.len() < PIECE) {
            self.pieces.push(BlobPiece::Memory(Vec::new()));
            self.make_room(spill)?;
        }
        let number = self.pieces.len() as u64 - 1;
        let Some(BlobPiece::Memory(piece)) = self.pieces.last_mut() else {
            return Err(WriteError::Misused("the newest piece was put aside"));
        };
        self.last = (number << 32 | piece.len() as u64, length);
        piece.extend_from_slice(bytes);
        self.in_memory += bytes.len();
        Ok(self.last)
    }

    fn make_room(&mut self, spill: &mut Spill) -> Result<(), WriteError> {
        while self.in_memory > self.budget && self.oldest + 1 < self.pieces.len() {
            if let BlobPiece::Memory(piece) = &self.pieces[self.oldest] {
                self.in_memory -= piece.len();
                self.pieces[self.oldest] = BlobPiece::Spilled(spill.append(piece)?);
            }
            self.oldest += 1;
        }
        Ok(())
    }

    fn in_piece(&self, (place, length): (u64, u32)) -> Option<&[u8]> {
        match self.pieces.get(usize::try_from(place >> 32).ok()?)? {
            BlobPiece::Memory(piece) => {
                let from = usize::try_from(place & 0xffff_ffff).ok()?;
                piece.get(from..from + length as usize)
            }
            BlobPiece::Spilled(_) => None,
        }
    }

    /// Reads a kept value.
    pub(super) fn get(&self, (place, length): (u64, u32), spill: &Spill) -> Result<Vec<u8>, WriteError> {
        if length == 0 {
            return Ok(Vec::new());
        }
        if let Some(bytes) = self.in_piece((place, length)) {
            return Ok(bytes.to_vec());
        }
        let piece = usize::try_from(place >> 32).ok().and_then(|n| self.pieces.get(n));
        let Some(BlobPiece::Spilled(at)) = piece else { return Err(WriteError::Misused("no such attributes")) };
        let mut bytes = vec![0; length as usize];
        spill.read(at + (place & 0xffff_ffff), &mut bytes)?;
        Ok(bytes)
    }
}

/// Extended attributes as bytes.
pub(super) fn pack(xattrs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in xattrs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(&u32::try_from(part.len()).expect("looked at before").to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// And back.
pub(super) fn unpack(mut bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut part = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(part.to_vec())
    };
    std::iter::from_fn(|| Some((part()?, part()?))).collect()
}
