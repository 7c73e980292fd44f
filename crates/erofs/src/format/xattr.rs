//! Extended attributes. Behind an inode stands an area: a header of 12 bytes, numbers of shared attributes (four bytes each, the place
//! of an attribute counted in four bytes), and attributes of its own: 4 bytes of header, the name without its prefix, the
//! value, and zeros up to a multiple of four.

use super::u16_at;

/// Bytes of the area's header.
pub(crate) const AREA_HEADER: usize = 12;
/// Bytes of an attribute's header.
pub(crate) const HEADER: usize = 4;
/// Shared attributes of an inode at most.
pub(crate) const SHARED_MAX: usize = 255;
/// Longest value.
pub(crate) const VALUE_MAX: usize = 65_535;
/// Longest name without its prefix that the system calls know of: 255 bytes with it.
const NAME_MAX: usize = 255;
/// Longest area, header included.
pub(crate) const AREA_MAX: usize = AREA_HEADER + 4 * (u16::MAX as usize - 1);

/// The number that stands for a prefix, and the prefix. Access control lists have nothing behind it.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// A full name as the number of its prefix and what is behind it; `None` if there is no such number or nothing behind
/// a prefix that wants something.
pub(crate) fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    if name.len() > NAME_MAX || name.contains(&0) {
        return None;
    }
    let (index, rest) = PREFIXES.iter().find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)))?;
    (rest.is_empty() == is_whole(index)).then_some((index, rest))
}

/// The prefix of a number; `None` if it is not known.
pub(crate) fn prefix(index: u8) -> Option<&'static [u8]> {
    PREFIXES.iter().find(|(number, _)| *number == index).map(|(_, prefix)| *prefix)
}

/// Returns true if the prefix of a number is a whole name.
pub(crate) fn is_whole(index: u8) -> bool {
    matches!(index, 2 | 3)
}

/// Bytes of the area of an inode that has this count.
pub(crate) fn area(count: u16) -> usize {
    if count == 0 { 0 } else { AREA_HEADER + 4 * (usize::from(count) - 1) }
}

/// The count of an inode whose area has so many bytes (a multiple of four, header included, or none), `None` if it is too long.
pub(crate) fn count(area: usize) -> Option<u16> {
    if area == 0 { Some(0) } else { u16::try_from((area - AREA_HEADER) / 4 + 1).ok() }
}

/// Header of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawXattr {
    /// Bytes of the name behind the prefix.
    pub(crate) name_len: u8,
    /// Number of the prefix.
    pub(crate) index: u8,
    /// Bytes of the value.
    pub(crate) value_len: u16,
}

impl RawXattr {
    pub(crate) fn encode(self) -> [u8; HEADER] {
        let value = self.value_len.to_le_bytes();
        [self.name_len, self.index, value[0], value[1]]
    }

    pub(crate) fn decode(from: [u8; HEADER]) -> Self {
        Self { name_len: from[0], index: from[1], value_len: u16_at(&from, 2) }
    }

    /// Bytes of the whole attribute, up to where the next one begins.
    pub(crate) fn len(self) -> usize {
        (HEADER + usize::from(self.name_len) + usize::from(self.value_len)).next_multiple_of(4)
    }
}

/// An attribute as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    pub(crate) head: RawXattr,
    /// Behind the prefix.
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// By its full name; `None` if there is no place for it.
    pub(crate) fn new(name: &'a [u8], value: &'a [u8]) -> Option<Self> {
        let (index, name) = split(name)?;
        let (name_len, value_len) = (u8::try_from(name.len()).ok()?, u16::try_from(value.len()).ok()?);
        Some(Self { head: RawXattr { name_len, index, value_len }, name, value })
    }

    /// Bytes up to where the next one begins.
    pub(crate) fn len(&self) -> usize {
        self.head.len()
    }

    /// Returns true if the other one has the same name.
    pub(crate) fn is_named_as(&self, other: &Self) -> bool {
        (self.head.index, self.name) == (other.head.index, other.name)
    }

    /// Appends its bytes, from one multiple of four to another.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.head.encode());
        to.extend_from_slice(self.name);
        to.extend_from_slice(self.value);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// Appends what an area begins with: header and numbers of shared attributes, [`SHARED_MAX`] at most.
pub(crate) fn encode_area(shared: &[u32], to: &mut Vec<u8>) {
    let count = u8::try_from(shared.len()).expect("callers share no more");
    to.extend_from_slice(&[0, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0]);
    for id in shared {
        to.extend_from_slice(&id.to_le_bytes());
    }
}

/// The number of a shared attribute that stands at a place, `None` where numbers do not reach.
pub(crate) fn shared_id(at: u64) -> Option<u32> {
    u32::try_from(at / 4).ok()
}
