//! Owners, extended attributes, modes and times of copies, in this order, for the reasons that the unpacker has. What cannot be set is
//! counted, and is no error.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::Copier;
use crate::unpack::LABELS;
use crate::view::Node;
use crate::view::attributes::{Kind, Stat};
use crate::view::error::ViewError;

/// Bits that make a program run as its owner or group.
const SET_ID: u32 = 0o6000;

impl Copier<'_> {
    /// All attributes of a file or directory that is open.
    pub(super) fn dress_open(&mut self, fd: BorrowedFd<'_>, node: &Node, path: &[u8]) -> Result<(), ViewError> {
        let stat = node.stat;
        if self.gives_owner(&stat) {
            rustix::fs::fchown(fd, Some(Uid::from_raw(stat.uid)), Some(Gid::from_raw(stat.gid)))
                .map_err(|error| self.failed("set the owner of", path, error))?;
        }
        self.xattrs(node, path, |name, value| rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()))?;
        let mode = Mode::from_raw_mode(self.mode(&stat));
        rustix::fs::fchmod(fd, mode).map_err(|error| self.failed("set the mode of", path, error))?;
        rustix::fs::futimens(fd, &times(&stat)).map_err(|error| self.failed("set the times of", path, error))
    }

    /// All attributes of something that cannot or must not be opened.
    pub(super) fn dress_named(
        &mut self,
        dir: BorrowedFd<'_>,
        node: &Node,
        name: &[u8],
        path: &[u8],
    ) -> Result<(), ViewError> {
        let stat = node.stat;
        if self.gives_owner(&stat) {
            let (uid, gid) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| self.failed("set the owner of", path, error))?;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let thing =
            rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|error| self.failed("open", path, error))?;
        let way = CString::new(format!("/proc/self/fd/{}", thing.as_raw_fd())).expect("digits and letters");
        self.xattrs(node, path, |name, value| rustix::fs::setxattr(way.as_c_str(), name, value, XattrFlags::empty()))?;
        if stat.kind != Kind::Symlink {
            let mode = Mode::from_raw_mode(self.mode(&stat));
            rustix::fs::chmodat(rustix::fs::CWD, way.as_c_str(), mode, AtFlags::empty())
                .map_err(|error| self.failed("set the mode of", path, error))?;
        }
        rustix::fs::utimensat(dir, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed("set the times of", path, error))
    }

    /// Returns true if the owner is to be set; counts one that cannot be.
    fn gives_owner(&mut self, stat: &Stat) -> bool {
        if !self.options.privileged && (stat.uid, stat.gid) != self.user {
            self.copied.lacks.owners += 1;
        }
        self.options.privileged
    }

    /// The mode that a copy gets: what runs as its owner must not do so as another one.
    fn mode(&mut self, stat: &Stat) -> u32 {
        let foreign = !self.options.privileged && (stat.uid, stat.gid) != self.user;
        if !foreign || stat.mode & SET_ID == 0 {
            return stat.mode;
        }
        self.copied.lacks.special_modes += 1;
        stat.mode & !SET_ID
    }

    fn xattrs(
        &mut self,
        node: &Node,
        path: &[u8],
        set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), ViewError> {
        for (name, value) in self.view.xattrs(node)? {
            // A copy is a file of the node, which gives its own files their labels and signatures.
            let is_the_nodes = LABELS.contains(&name.as_slice());
            let is_roots = name.starts_with(b"security.") || name.starts_with(b"trusted.");
            if is_the_nodes || (!self.options.privileged && is_roots) {
                self.copied.lacks.xattrs += 1;
                continue;
            }
            match set(&name, &value) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => {
                    self.copied.lacks.xattrs += 1;
                }
                Err(error) => return Err(self.failed("set an extended attribute of", path, error)),
            }
        }
        Ok(())
    }
}

fn times(stat: &Stat) -> Timestamps {
    let (seconds, nanos) = stat.mtime;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    }
}
