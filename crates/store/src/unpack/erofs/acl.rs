//! Access control lists as the kernel takes and gives them in extended attributes: which are valid, and what a mode makes of
//! them. Pure.

use rustix::io::Errno;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of what has none.
const NOBODY: u32 = u32::MAX;

/// A line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AclEntry {
    tag: u16,
    bits: u16,
    id: u32,
}

/// Parses a list. An empty value, and a list without lines, remove the existing list.
pub(super) fn parse(value: &[u8]) -> Result<Vec<AclEntry>, Errno> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let (version, lines) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    if lines.len() % 8 != 0 {
        return Err(Errno::INVAL);
    }
    let line = |bytes: &[u8]| {
        let tag = u16::from_le_bytes([bytes[0], bytes[1]]);
        let bits = u16::from_le_bytes([bytes[2], bytes[3]]);
        let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        match tag {
            USER_OBJ | GROUP_OBJ | MASK | OTHER => Ok(AclEntry { tag, bits, id: NOBODY }),
            USER | GROUP if id != NOBODY => Ok(AclEntry { tag, bits, id }),
            _ => Err(Errno::INVAL),
        }
    };
    lines.chunks_exact(8).map(line).collect()
}

/// Returns true if the list is in order: the owner, users, the group, groups, a mask where there are users or groups, the entry
/// for all other users.
pub(super) fn is_valid(list: &[AclEntry]) -> bool {
    let mut expected = USER_OBJ;
    let mut needs_mask = false;
    for line in list {
        if line.bits & !7 != 0 {
            return false;
        }
        expected = match (expected, line.tag) {
            (USER_OBJ, USER_OBJ) => USER,
            (USER, USER) => {
                needs_mask = true;
                USER
            }
            (USER, GROUP_OBJ) => GROUP,
            (GROUP, GROUP) => {
                needs_mask = true;
                GROUP
            }
            (GROUP, MASK) => OTHER,
            (OTHER, OTHER) => 0,
            (GROUP, OTHER) if !needs_mask => 0,
            _ => return false,
        };
    }
    expected == 0
}

/// Returns true if a mode cannot say it all.
pub(super) fn says_more_than_a_mode(list: &[AclEntry]) -> bool {
    list.iter().any(|line| matches!(line.tag, USER | GROUP | MASK))
}

/// The list after the mode was set.
pub(super) fn with_mode(mut list: Vec<AclEntry>, mode: u32) -> Vec<AclEntry> {
    let bits = |shift: u32| u16::try_from(mode >> shift & 7).expect("three bits");
    let group = if list.iter().any(|line| line.tag == MASK) { MASK } else { GROUP_OBJ };
    for line in &mut list {
        match line.tag {
            USER_OBJ => line.bits = bits(6),
            OTHER => line.bits = bits(0),
            tag if tag == group => line.bits = bits(3),
            _ => {}
        }
    }
    list
}

pub(super) fn bytes(list: &[AclEntry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for line in list {
        bytes.extend_from_slice(&line.tag.to_le_bytes());
        bytes.extend_from_slice(&line.bits.to_le_bytes());
        bytes.extend_from_slice(&line.id.to_le_bytes());
    }
    bytes
}
