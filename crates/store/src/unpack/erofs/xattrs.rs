//! The attributes of what an entry makes, as they would be if the kernel had been asked to set them one after the other.

use erofs::Attributes;
use rustix::io::Errno;

use super::super::error::UnpackError;
use super::super::form::Unpacker;
use super::super::tree::Id;
use super::super::xattrs::{ACCESS_ACL, DEFAULT_ACL, NOT_HELD, WRONG_KIND, failed_xattr};
use super::{ErofsForm, acl};
use crate::tar::{Entry, Kind};

/// Most bytes of a value that the kernel takes.
const VALUE_MOST: usize = 64 << 10;
/// Most bytes of a name.
const NAME_MOST: usize = 255;

/// The kernel's treatment of an extended attribute.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Kept(Vec<u8>),
    /// There is no such thing afterwards.
    Nothing,
    Skipped(&'static str),
    Refused(Errno),
}

/// Decides as the kernel does with an attribute of a file of this kind and mode, asked by root.
fn fate(kind: Kind, mode: u32, name: &[u8], value: &[u8]) -> Fate {
    if name.is_empty() || name.len() > NAME_MOST {
        return Fate::Refused(Errno::RANGE);
    }
    if name.contains(&0) {
        return Fate::Refused(Errno::INVAL);
    }
    if value.len() > VALUE_MOST {
        return Fate::Refused(Errno::TOOBIG);
    }
    let is_open = matches!(kind, Kind::File | Kind::Directory);
    if name == ACCESS_ACL || name == DEFAULT_ACL {
        return list(kind, mode, name, value);
    }
    if name.starts_with(b"user.") && !is_open {
        return Fate::Skipped(WRONG_KIND);
    }
    if name == b"security.capability" && !value.is_empty() && !is_capability(value) {
        return Fate::Refused(Errno::INVAL);
    }
    if matches!(name, b"user." | b"security.") {
        return Fate::Refused(Errno::INVAL);
    }
    if !(name.starts_with(b"user.") || name.starts_with(b"security.")) {
        return Fate::Skipped(NOT_HELD);
    }
    if erofs::can_hold(name, value) { Fate::Kept(value.to_vec()) } else { Fate::Refused(Errno::NOSPC) }
}

fn list(kind: Kind, mode: u32, name: &[u8], value: &[u8]) -> Fate {
    let list = match acl::parse(value) {
        Ok(list) => list,
        Err(Errno::OPNOTSUPP) => return Fate::Skipped(NOT_HELD),
        Err(error) => return Fate::Refused(error),
    };
    if kind == Kind::Symlink {
        return Fate::Skipped(NOT_HELD);
    }
    if name == DEFAULT_ACL && kind != Kind::Directory {
        return if list.is_empty() { Fate::Nothing } else { Fate::Skipped(WRONG_KIND) };
    }
    if list.is_empty() {
        return Fate::Nothing;
    }
    if !acl::is_valid(&list) {
        return Fate::Refused(Errno::INVAL);
    }
    match (name == ACCESS_ACL, acl::says_more_than_a_mode(&list)) {
        (true, false) => Fate::Nothing,
        // A later change of mode changes the list as well.
        (true, true) => Fate::Kept(acl::bytes(&acl::with_mode(list, mode))),
        (false, _) => Fate::Kept(acl::bytes(&list)),
    }
}

/// Of version 2 or 3, as long as it must be.
fn is_capability(value: &[u8]) -> bool {
    let magic = value.first_chunk().map(|magic| u32::from_le_bytes(*magic) & !1);
    matches!((magic, value.len()), (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24))
}

impl Unpacker<'_, ErofsForm<'_>> {
    /// The attributes of something new in a directory.
    pub(super) fn attributes_of(&mut self, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<Attributes, UnpackError> {
        // The path is only for messages.
        let path = if entry.xattrs.is_empty() { Vec::new() } else { self.tree.path_of(dir, leaf) };
        self.attributes(entry, &path)
    }

    /// The attributes that an entry gives, but for a directory's default access control list.
    pub(super) fn attributes(&mut self, entry: &Entry, path: &[u8]) -> Result<Attributes, UnpackError> {
        let mode = if entry.kind == Kind::Symlink { 0o777 } else { entry.mode };
        let mtime = (entry.mtime.seconds, entry.mtime.nanos);
        let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (name, value) in &entry.xattrs {
            if self.skips_foreign(name, path) || (name == DEFAULT_ACL && entry.kind == Kind::Directory) {
                continue;
            }
            let fate = fate(entry.kind, mode, name, value);
            if matches!(fate, Fate::Kept(_) | Fate::Nothing) {
                xattrs.retain(|(known, _)| known != name);
            }
            match fate {
                Fate::Kept(value) => xattrs.push((name.clone(), value)),
                Fate::Nothing => {}
                Fate::Skipped(why) => self.skip_xattr(name, path, why),
                Fate::Refused(error) => return Err(failed_xattr(name, path, error)),
            }
        }
        Ok(Attributes { mode, uid: entry.uid, gid: entry.gid, mtime, xattrs })
    }

    /// Adds a directory's default access control list. That it is a bad one is said at the end.
    pub(super) fn add_default_acl(
        &mut self,
        entry: &Entry,
        id: Id,
        attributes: &mut Attributes,
    ) -> Result<(), UnpackError> {
        let Some((name, value)) = entry.xattrs.iter().find(|(name, _)| name == DEFAULT_ACL) else { return Ok(()) };
        self.count_default_acl(entry, value.len())?;
        match fate(Kind::Directory, entry.mode, name, value) {
            Fate::Kept(value) => attributes.xattrs.push((name.clone(), value)),
            Fate::Nothing => {}
            Fate::Skipped(_) => self.tree.node_mut(id).own.bad_default_acl = Some(Errno::OPNOTSUPP),
            Fate::Refused(error) => self.tree.node_mut(id).own.bad_default_acl = Some(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_no_lists() {
        let v2 = [&0x0200_0001_u32.to_le_bytes()[..], &[0; 16]].concat();
        let kept = |value: &[u8]| Fate::Kept(value.to_vec());
        let cases: &[(Kind, &[u8], &[u8], Fate)] = &[
            (Kind::File, b"user.a", b"1", kept(b"1")),
            (Kind::Directory, b"user.a", b"", kept(b"")),
            (Kind::Symlink, b"user.a", b"1", Fate::Skipped(WRONG_KIND)),
            (Kind::Fifo, b"user.", b"1", Fate::Skipped(WRONG_KIND)),
            (Kind::File, b"user.", b"1", Fate::Refused(Errno::INVAL)),
            (Kind::Symlink, b"security.x", b"1", kept(b"1")),
            (Kind::File, b"security.capability", &v2, kept(&v2)),
            (Kind::File, b"security.capability", &v2[..19], Fate::Refused(Errno::INVAL)),
            (Kind::File, b"security.capability", b"", kept(b"")),
            (Kind::File, b"system.other", b"1", Fate::Skipped(NOT_HELD)),
            (Kind::File, b"other", b"1", Fate::Skipped(NOT_HELD)),
            (Kind::File, b"", b"1", Fate::Refused(Errno::RANGE)),
        ];
        for (kind, name, value, want) in cases {
            assert_eq!(fate(*kind, 0o644, name, value), *want, "{kind:?} {:?}", String::from_utf8_lossy(name));
        }
        assert_eq!(fate(Kind::File, 0, b"user.a", &vec![0; (64 << 10) + 1]), Fate::Refused(Errno::TOOBIG));
        assert_eq!(
            fate(Kind::File, 0, &[b"user.".as_slice(), &[b'n'; 251]].concat(), b""),
            Fate::Refused(Errno::RANGE)
        );
    }
}
