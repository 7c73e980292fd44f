//! The names and attributes that the format refuses: names that are none, and attributes that have no place.

use super::error::WriteError;
use crate::format::dirent;
use crate::{Attributes, can_hold};

/// Refuses names that no entry can have.
pub(super) fn check_name(name: &[u8]) -> Result<(), WriteError> {
    let is_name = (1..=dirent::NAME_MAX).contains(&name.len()) && !matches!(name, b"." | b"..");
    if is_name && !name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Ok(());
    }
    Err(WriteError::Beyond { what: format!("the name {:?}", String::from_utf8_lossy(name)) })
}

/// Refuses attributes that no inode can have; returns the mode.
pub(crate) fn check_attributes(attributes: &Attributes) -> Result<u16, WriteError> {
    if let Some((name, value)) = attributes.xattrs.iter().find(|(name, value)| !can_hold(name, value)) {
        return Err(WriteError::attribute(name, value));
    }
    if attributes.mtime.1 >= 1_000_000_000 {
        return Err(WriteError::Misused("nanoseconds of more than a second"));
    }
    u16::try_from(attributes.mode)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or(WriteError::Misused("a mode with more than permission bits"))
}
