//! PAX extended headers: records `length key=value\n`, and the changes that they make to an entry. Strict: a record that is not
//! exactly of this form makes the archive malformed, because readers that guess disagree about the entries of the archive.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::entry::{Piece, Time};
use super::sparse::{MapError, decimal, parse_list};

/// libarchive writes no padding, other writers do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The extended header of one entry. `None` and empty = nothing.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<i64>,
    pub(super) gid: Option<i64>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: PaxSparse,
}

/// The `GNU.sparse.*` records.
#[derive(Debug, Default)]
pub(super) struct PaxSparse {
    major: Option<Vec<u8>>,
    minor: Option<Vec<u8>>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// Pieces of versions 0.0 and 0.1.
    pieces: Option<Vec<Piece>>,
    /// Version 0.0: an offset whose length has not come yet.
    half: Option<u64>,
}

/// How the map of a sparse file is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SparseMap {
    /// Not a sparse file, or one of an unknown version: its data is read unchanged, as Go does.
    None,
    /// In the header.
    Here(Vec<Piece>),
    /// In front of the data (version 1.0).
    InData,
}

/// Limits of one header.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaxLimits {
    pub(super) record_bytes: usize,
    pub(super) xattrs: usize,
    pub(super) sparse_pieces: usize,
}

/// Why a header is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PaxError {
    Malformed(String),
    Limit { limit_name: &'static str, limit: u64, seen: u64 },
}

/// Reads all records of one header.
pub(super) fn parse(mut bytes: &[u8], limits: PaxLimits) -> Result<Pax, PaxError> {
    let mut pax = Pax::default();
    while !bytes.is_empty() {
        let (key, value, rest) = record(bytes, limits)?;
        pax.take(key, value, limits)?;
        bytes = rest;
    }
    if pax.sparse.half.is_some() {
        return Err(malformed("GNU.sparse.offset without GNU.sparse.numbytes"));
    }
    Ok(pax)
}

fn malformed(what: impl Into<String>) -> PaxError {
    PaxError::Malformed(what.into())
}

/// Key and value of a record, and what follows it.
type PaxRecord<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Splits the first record off.
fn record(bytes: &[u8], limits: PaxLimits) -> Result<PaxRecord<'_>, PaxError> {
    let bad = || malformed("a PAX record is not of the form \"length key=value\\n\"");
    let space = bytes.iter().take(limits.record_bytes).position(|b| *b == b' ').ok_or_else(bad)?;
    let len = decimal(&bytes[..space]).ok_or_else(bad)?;
    if len > limits.record_bytes as u64 {
        return Err(PaxError::Limit {
            limit_name: "bytes in a PAX record",
            limit: limits.record_bytes as u64,
            seen: len,
        });
    }
    let len = usize::try_from(len).map_err(|_| bad())?;
    if len > bytes.len() || len <= space + 1 || bytes[len - 1] != b'\n' {
        return Err(bad());
    }
    let pair = &bytes[space + 1..len - 1];
    let equals = pair.iter().position(|b| *b == b'=').ok_or_else(bad)?;
    let (key, value) = (&pair[..equals], &pair[equals + 1..]);
    if key.is_empty() || key.contains(&0) {
        return Err(malformed("a PAX record has an empty key or one with a NUL"));
    }
    if matches!(key, b"path" | b"linkpath" | b"uname" | b"gname" | b"GNU.sparse.name") && value.contains(&0) {
        return Err(malformed(format!("the PAX record {} has a NUL in its value", String::from_utf8_lossy(key))));
    }
    Ok((key, value, &bytes[len..]))
}

impl Pax {
    /// Takes one record in. A later one wins; an empty value takes an earlier one back.
    fn take(&mut self, key: &[u8], value: &[u8], limits: PaxLimits) -> Result<(), PaxError> {
        let bad = || malformed(format!("the PAX record {} has no valid value", String::from_utf8_lossy(key)));
        match key {
            b"path" => self.path = text(value),
            b"linkpath" => self.link = text(value),
            b"size" => self.size = optional(value, decimal, bad)?,
            b"uid" => self.uid = optional(value, signed, bad)?,
            b"gid" => self.gid = optional(value, signed, bad)?,
            b"mtime" => self.mtime = optional(value, time, bad)?,
            b"atime" => self.atime = optional(value, time, bad)?,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(name.to_vec(), value.to_vec(), limits)?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let name = url_decoded(name).ok_or_else(bad)?;
                    let value = BASE64.decode(value).map_err(|_| bad())?;
                    // libarchive writes both forms; the plain one is the original.
                    if !self.xattrs.iter().any(|(known, _)| *known == name) {
                        self.xattr(name, value, limits)?;
                    }
                } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.take(name, value, limits.sparse_pieces).map_err(|e| match e {
                        MapError::TooMany => too_many_pieces(limits.sparse_pieces),
                        MapError::Malformed(what) => malformed(what),
                    })?;
                }
            }
        }
        Ok(())
    }

    fn xattr(&mut self, name: Vec<u8>, value: Vec<u8>, limits: PaxLimits) -> Result<(), PaxError> {
        if name.is_empty() || name.contains(&0) {
            return Err(malformed("an extended attribute has no valid name"));
        }
        if let Some(known) = self.xattrs.iter_mut().find(|(known, _)| *known == name) {
            known.1 = value;
            return Ok(());
        }
        if self.xattrs.len() >= limits.xattrs {
            let limit = limits.xattrs as u64;
            return Err(PaxError::Limit { limit_name: "extended attributes", limit, seen: limit + 1 });
        }
        self.xattrs.push((name, value));
        Ok(())
    }
}

/// The error for a map with too many pieces.
pub(super) fn too_many_pieces(limit: usize) -> PaxError {
    PaxError::Limit { limit_name: "pieces of a sparse file", limit: limit as u64, seen: limit as u64 + 1 }
}

impl PaxSparse {
    fn take(&mut self, key: &[u8], value: &[u8], most: usize) -> Result<(), MapError> {
        let number = || decimal(value).ok_or(MapError::Malformed("a GNU.sparse record is no number"));
        match key {
            b"major" => self.major = text(value),
            b"minor" => self.minor = text(value),
            b"name" => self.name = text(value),
            b"realsize" | b"size" => self.real_size = Some(number()?),
            b"map" => self.pieces = Some(parse_list(value, most)?),
            b"offset" if self.half.is_some() => {
                return Err(MapError::Malformed("two GNU.sparse.offset records in a row"));
            }
            b"offset" => self.half = Some(number()?),
            b"numbytes" => {
                let Some(offset) = self.half.take() else {
                    return Err(MapError::Malformed("GNU.sparse.numbytes without GNU.sparse.offset"));
                };
                let pieces = self.pieces.get_or_insert_default();
                if pieces.len() >= most {
                    return Err(MapError::TooMany);
                }
                pieces.push(Piece { offset, len: number()? });
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the map is. The rules of versions are those of Go's reader.
    pub(super) fn map(&mut self) -> SparseMap {
        match (self.major.as_deref(), self.minor.as_deref()) {
            (Some(b"1"), Some(b"0")) => SparseMap::InData,
            (Some(b"0"), Some(b"0" | b"1")) => self.pieces.take().map_or(SparseMap::Here(Vec::new()), SparseMap::Here),
            (None, None) => self.pieces.take().map_or(SparseMap::None, SparseMap::Here),
            _ => SparseMap::None,
        }
    }
}

fn text(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// A value, or nothing where it is empty, which takes an earlier one back. Fails with `bad` where it does not parse.
fn optional<T>(
    value: &[u8],
    parse: impl Fn(&[u8]) -> Option<T>,
    bad: impl Fn() -> PaxError,
) -> Result<Option<T>, PaxError> {
    if value.is_empty() { Ok(None) } else { parse(value).map(Some).ok_or_else(bad) }
}

fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => decimal(digits).and_then(|n| 0_i64.checked_sub_unsigned(n)),
        None => decimal(text).and_then(|n| i64::try_from(n).ok()),
    }
}

/// Decimal seconds with a fraction of any length; what is finer than a nanosecond is cut off. Before 1970 the fraction
/// counts downwards: -1.25 is 1.25 s before.
fn time(text: &[u8]) -> Option<Time> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let dot = text.iter().position(|b| *b == b'.');
    let (whole, fraction) = dot.map_or((text, &[][..]), |at| (&text[..at], &text[at + 1..]));
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = i64::try_from(decimal(whole)?).ok()?;
    let nanos = (0..9).fold(0_u32, |n, at| n * 10 + u32::from(fraction.get(at).map_or(0, |d| d - b'0')));
    if !negative {
        return Some(Time { seconds, nanos });
    }
    if nanos == 0 {
        return Some(Time { seconds: -seconds, nanos });
    }
    Some(Time { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos })
}

/// Takes `%41` apart.
fn url_decoded(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let mut nibble = || bytes.next().and_then(|b| char::from(*b).to_digit(16));
        let (high, low) = (nibble()?, nibble()?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(out)
}

#[cfg(test)]
#[path = "pax_tests.rs"]
mod tests;
