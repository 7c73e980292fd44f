//! Maps of sparse files: old GNU, and GNU's PAX versions 0.0, 0.1 and 1.0. Pure functions; the reader feeds them.

use super::entry::Piece;
use super::header::number;

/// Takes the pieces of an old GNU header or extension block; stops at the first empty one.
pub(super) fn old_pieces(fields: &[u8], out: &mut Vec<Piece>) -> Result<(), String> {
    for field in fields.chunks_exact(24) {
        if field[0] == 0 {
            break;
        }
        let part = |bytes| number(bytes).and_then(|n| u64::try_from(n).ok());
        let (Some(offset), Some(len)) = (part(&field[..12]), part(&field[12..])) else {
            return Err("a piece of a sparse file has no valid numbers".into());
        };
        out.push(Piece { offset, len });
    }
    Ok(())
}

/// A decimal number without sign, after any number of zeros.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// The map of version 0.1: `offset,length,offset,length,…`.
pub(super) fn parse_list(text: &[u8], most: usize) -> Result<Vec<Piece>, MapError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut pieces = Vec::new();
    let mut fields = text.split(|b| *b == b',');
    while let Some(offset) = fields.next() {
        let (Some(offset), Some(len)) = (decimal(offset), fields.next().and_then(decimal)) else {
            return Err(MapError::Malformed("the map of a sparse file is no list of pairs of numbers"));
        };
        if pieces.len() >= most {
            return Err(MapError::TooMany);
        }
        pieces.push(Piece { offset, len });
    }
    Ok(pieces)
}

/// Why a map is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapError {
    TooMany,
    Malformed(&'static str),
}

/// The lines of a version 1.0 map, fed block by block.
#[derive(Default)]
pub(super) struct MapLines {
    count: Option<u64>,
    half: Option<u64>,
    line: Vec<u8>,
    pieces: Vec<Piece>,
}

impl MapLines {
    pub(super) fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }

    /// Returns true if the map is whole.
    pub(super) fn complete(&self) -> bool {
        self.half.is_none() && self.count == Some(self.pieces.len() as u64)
    }

    /// Takes a block in; what follows the last line is padding.
    pub(super) fn take(&mut self, block: &[u8], most: usize) -> Result<(), MapError> {
        let bad = MapError::Malformed("the map of a sparse file has a line that is no number");
        for byte in block {
            if self.complete() {
                return Ok(());
            }
            if *byte != b'\n' {
                if self.line.len() > 20 {
                    return Err(bad);
                }
                self.line.push(*byte);
                continue;
            }
            let number = decimal(&self.line).ok_or(bad)?;
            self.line.clear();
            match (self.count, self.half.take()) {
                (None, _) if number > most as u64 => return Err(MapError::TooMany),
                (None, _) => self.count = Some(number),
                (Some(_), None) => self.half = Some(number),
                (Some(_), Some(offset)) => self.pieces.push(Piece { offset, len: number }),
            }
        }
        Ok(())
    }
}

/// Holds a map against the size of the file and the bytes of data in the archive: in order, no overlap, inside the
/// file, and exactly as much as there is.
pub(super) fn check(pieces: &[Piece], size: u64, data: u64) -> Result<(), &'static str> {
    let (mut end, mut sum) = (0_u64, 0_u64);
    for piece in pieces {
        let Some(piece_end) = piece.offset.checked_add(piece.len) else {
            return Err("a piece of a sparse file ends beyond all numbers");
        };
        if piece.offset < end {
            return Err("the pieces of a sparse file overlap or are out of order");
        }
        if piece_end > size {
            return Err("a piece of a sparse file lies beyond its end");
        }
        end = piece_end;
        sum += piece.len;
    }
    if sum != data {
        return Err("the map of a sparse file and its data differ in length");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, len: u64) -> Piece {
        Piece { offset, len }
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list(b"", 2), Ok(vec![]));
        assert_eq!(parse_list(b"0,5,10,3", 2), Ok(vec![piece(0, 5), piece(10, 3)]));
        assert_eq!(parse_list(b"0,5,10,3", 1), Err(MapError::TooMany));
        for bad in [&b"0"[..], b"0,5,", b"0,5,10", b"-1,5", b"a,b", b"0,99999999999999999999", b"0, 5"] {
            assert!(matches!(parse_list(bad, 9), Err(MapError::Malformed(_))), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn maps_are_held_against_size_and_data() {
        assert_eq!(check(&[piece(0, 5), piece(10, 3), piece(20, 0)], 20, 8), Ok(()));
        assert!(check(&[piece(0, 5), piece(4, 3)], 20, 8).is_err(), "overlap");
        assert!(check(&[piece(10, 3), piece(0, 5)], 20, 8).is_err(), "order");
        assert!(check(&[piece(18, 3)], 20, 3).is_err(), "beyond the end");
        assert!(check(&[piece(0, 3)], 20, 4).is_err(), "too much data");
        assert!(check(&[piece(0, 3)], 20, 2).is_err(), "too little data");
        assert!(check(&[piece(u64::MAX, 2)], u64::MAX, 2).is_err(), "overflow");
    }
}
