//! The 512-byte header block: fields, numbers, checksum, format. Pure functions over one block.

use super::entry::Time;

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;

/// The dialect of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    V7,
    Ustar,
    Star,
    Gnu,
}

/// A header block whose checksum is right.
#[derive(Clone, Copy)]
pub(super) struct Header<'a> {
    block: &'a [u8],
}

/// Returns true if a block is all zero.
pub(super) fn is_zero(block: &[u8]) -> bool {
    // A header's first byte is of its name: checking it is enough for most.
    block.first() == Some(&0) && block.iter().all(|b| *b == 0)
}

impl<'a> Header<'a> {
    /// Checks the sum; `None` when it is wrong. Sums over signed bytes, which old Sun programs wrote, count as right.
    pub(super) fn new(block: &'a [u8]) -> Option<Self> {
        debug_assert_eq!(block.len(), BLOCK);
        let field = &block[148..156];
        let stored = number(field)?;
        // The field itself counts as blanks. Plain sums over everything go several bytes at a time.
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let unsigned = i64::from(sum(block) - sum(field)) + 8 * i64::from(b' ');
        if stored == unsigned {
            return Some(Self { block });
        }
        let signed = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte.cast_signed())).sum::<i64>();
        (stored == signed(block) - signed(field) + 8 * i64::from(b' ')).then_some(Self { block })
    }

    pub(super) fn format(self) -> Format {
        match (&self.block[257..263], &self.block[263..265]) {
            (b"ustar\0", _) if &self.block[508..512] == b"tar\0" => Format::Star,
            (b"ustar\0", _) => Format::Ustar,
            (b"ustar ", b" \0") => Format::Gnu,
            _ => Format::V7,
        }
    }

    pub(super) fn type_flag(self) -> u8 {
        self.block[156]
    }

    /// The name with its prefix, appended to `out`.
    pub(super) fn name(self, out: &mut Vec<u8>) {
        let prefix = match self.format() {
            Format::Ustar => text(&self.block[345..500]),
            Format::Star => text(&self.block[345..476]),
            Format::V7 | Format::Gnu => &[],
        };
        if !prefix.is_empty() {
            out.extend_from_slice(prefix);
            out.push(b'/');
        }
        out.extend_from_slice(text(&self.block[..100]));
    }

    pub(super) fn link(self) -> &'a [u8] {
        text(&self.block[157..257])
    }

    pub(super) fn mode(self) -> Option<i64> {
        number(&self.block[100..108])
    }

    pub(super) fn uid(self) -> Option<i64> {
        number(&self.block[108..116])
    }

    pub(super) fn gid(self) -> Option<i64> {
        number(&self.block[116..124])
    }

    /// Bytes of data that follow; negative numbers are no size.
    pub(super) fn size(self) -> Option<u64> {
        number(&self.block[124..136]).and_then(|n| u64::try_from(n).ok())
    }

    pub(super) fn mtime(self) -> Option<Time> {
        number(&self.block[136..148]).map(|seconds| Time { seconds, nanos: 0 })
    }

    /// The time of the last access, which only GNU and star headers have.
    pub(super) fn atime(self) -> Option<Time> {
        let field = match self.format() {
            Format::Gnu => &self.block[345..357],
            Format::Star => &self.block[476..488],
            Format::V7 | Format::Ustar => return None,
        };
        // Programs write rubbish into this field (old GNU tar left it as it was), so that an invalid number means no time.
        if field[0] == 0 {
            return None;
        }
        number(field).map(|seconds| Time { seconds, nanos: 0 })
    }

    /// Major and minor number of a device; (0, 0) in the oldest format, which has none.
    pub(super) fn device(self) -> Option<(i64, i64)> {
        if self.format() == Format::V7 {
            return Some((0, 0));
        }
        Some((number(&self.block[329..337])?, number(&self.block[337..345])?))
    }

    /// The old GNU sparse header: four pieces of 24 bytes, whether a block with more follows, the real size.
    pub(super) fn old_sparse(self) -> (&'a [u8], bool, Option<u64>) {
        let real = number(&self.block[483..495]).and_then(|n| u64::try_from(n).ok());
        (&self.block[386..482], self.block[482] != 0, real)
    }
}

/// A text field: up to the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|b| *b == 0).unwrap_or(field.len())]
}

/// A number field: octal digits between spaces and NULs (nothing = 0), or big-endian two's complement ("base-256") when
/// the first bit is set.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        return base_256(field);
    }
    let blank = |b: &u8| matches!(*b, b' ' | 0);
    let start = field.iter().position(|b| !blank(b)).unwrap_or(field.len());
    let end = field.iter().rposition(|b| !blank(b)).map_or(start, |last| last + 1);
    // A field may be cut short by a NUL with rubbish behind it.
    let digits = text(&field[start..end]);
    let digits = &digits[..digits.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1)];
    let mut value = 0_i64;
    for digit in digits {
        if !(b'0'..=b'7').contains(digit) {
            return None;
        }
        value = value.checked_mul(8)?.checked_add(i64::from(digit - b'0'))?;
    }
    Some(value)
}

fn base_256(field: &[u8]) -> Option<i64> {
    let negative = field[0] & 0x40 != 0;
    let mut value: i128 = if negative { -1 } else { 0 };
    for (at, byte) in field.iter().enumerate() {
        // The first bit only marks the encoding; the second one is the sign.
        let byte = match (at, negative) {
            (0, true) => byte | 0x80,
            (0, false) => byte & 0x7f,
            _ => *byte,
        };
        value = (value << 8) | i128::from(byte);
        if i64::try_from(value).is_err() {
            return None;
        }
    }
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let cases: &[(&[u8], Option<i64>)] = &[
            (b"0000644\0", Some(0o644)),
            (b"  644 \0\0", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777 ", Some(0o77_777_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"0000648\0", None),
            (b"-000001\0", None),
            (b"0x1f\0", None),
            (b"6 4\0", None),
            (b"\x80\0\0\0\0\0\0\x05", Some(5)),
            (b"\x80\0\0\x01\0\0\0\0", Some(1 << 32)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ];
        for (field, want) in cases {
            assert_eq!(number(field), *want, "{:?}", String::from_utf8_lossy(field));
        }
    }

    #[test]
    fn a_wrong_sum_is_no_header() {
        let mut block = vec![0_u8; BLOCK];
        block[..4].copy_from_slice(b"name");
        let sum: i64 = block.iter().map(|b| i64::from(*b)).sum::<i64>() + 8 * 32;
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(Header::new(&block).is_some());
        block[0] = b'm';
        assert!(Header::new(&block).is_none());
    }
}
