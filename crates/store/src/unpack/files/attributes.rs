//! Owners, extended attributes, modes and times, in this order: a change of owner takes the set-user-id bit and the
//! capabilities away, and the times come last because everything else changes them.
//!
//! Attributes that a new file has anyway are not set again. Every call acts on a descriptor of the file itself, or on a name in a
//! directory's descriptor without following it.
//!
//! Which extended attributes are taken, [`super::super::xattrs`] says; what the file system cannot hold is left out as well.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

use super::super::error::{UnpackError, failed};
use super::super::form::Unpacker;
use super::super::tree::{Id, ROOT, Tree};
use super::super::xattrs::{ACCESS_ACL, DEFAULT_ACL, NOT_HELD, WRONG_KIND, failed_xattr, is_foreign};
use super::Files;
use super::deferred::DeferredLine;
use super::descriptors::OnDisk;
use super::kernel_values::{bytes_on_disk, timestamps};
use crate::disk::xattr::XattrFile;
use crate::tar::{Entry, Kind};

/// The file whose extended attributes are set.
enum XattrTarget<'a> {
    Fd(BorrowedFd<'a>),
    /// A path that ends in the name and begins in `/proc/self/fd`: there is no `setxattrat` yet on the kernels of
    /// today, and a symbolic link cannot be opened.
    Name(CString),
}

impl XattrTarget<'_> {
    fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Fd(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Name(path) => rustix::fs::lsetxattr(path.as_c_str(), name, value, XattrFlags::empty()),
        }
    }
}

impl Unpacker<'_, Files<'_>> {
    /// The mode to create something with: special bits come after the owner, and an ordinary user keeps `least`.
    pub(super) fn mode_on_creation(&self, mode: u32, least: u32) -> u32 {
        self.mode_wanted(mode, least) & 0o777
    }

    fn mode_wanted(&self, mode: u32, least: u32) -> u32 {
        if self.options.privileged { mode } else { mode | least }
    }

    /// Gives the root to root.
    pub(super) fn own_root(&mut self) -> Result<(), UnpackError> {
        let fd = self.fd(ROOT)?;
        self.own_fd(fd.as_fd(), (0, 0), true, b"")
    }

    /// Sets the owner, unless new files have it anyway and this is one. An ordinary user sets none.
    pub(super) fn own_fd(
        &self,
        fd: BorrowedFd<'_>,
        owner: (u32, u32),
        always: bool,
        path: &[u8],
    ) -> Result<(), UnpackError> {
        let Some((uid, gid)) = self.owner_to_set(owner, always) else { return Ok(()) };
        rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(|e| failed("setting the owner of", path, e))
    }

    /// The same for a name.
    pub(super) fn own_named(&mut self, dir: Id, leaf: &[u8], owner: (u32, u32)) -> Result<(), UnpackError> {
        let Some((uid, gid)) = self.owner_to_set(owner, false) else { return Ok(()) };
        let fd = self.fd(dir)?;
        rustix::fs::chownat(&*fd, leaf, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed("setting the owner of", &self.tree.path_of(dir, leaf), e))
    }

    fn owner_to_set(&self, owner: (u32, u32), always: bool) -> Option<(Uid, Gid)> {
        let needed = self.options.privileged && (always || owner != (self.form.defaults.uid, self.form.defaults.gid));
        needed.then(|| (Uid::from_raw(owner.0), Gid::from_raw(owner.1)))
    }

    /// All attributes of a new regular file. Its bytes on disk, where the attributes may have changed them.
    pub(super) fn dress_file(
        &mut self,
        fd: &OwnedFd,
        entry: &Entry,
        mode_on_creation: u32,
        path: &[u8],
    ) -> Result<Option<u64>, UnpackError> {
        self.own_fd(fd.as_fd(), (entry.uid, entry.gid), false, path)?;
        let mut line = self.line(entry);
        let acl = self.set_xattrs(&XattrTarget::Fd(fd.as_fd()), entry, path, &mut line)?;
        let wanted = self.mode_wanted(entry.mode, 0o600);
        if acl || wanted != mode_on_creation & !self.form.defaults.umask {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(wanted)).map_err(|e| failed("setting the mode of", path, e))?;
        }
        line.mode = (wanted != entry.mode).then_some(entry.mode);
        self.defer(path, line)?;
        rustix::fs::futimens(fd, &timestamps(entry.mtime, entry.atime))
            .map_err(|e| failed("setting the times of", path, e))?;
        if entry.xattrs.is_empty() {
            return Ok(None);
        }
        let bytes = crate::disk::usage::bytes_on_disk(|| rustix::fs::fstat(fd));
        Ok(Some(bytes.map_err(|e| failed("looking at", path, e))?))
    }

    /// All attributes of something new that cannot or must not be opened. A symbolic link has no mode.
    pub(super) fn dress_named(
        &mut self,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
        mode_on_creation: Option<u32>,
    ) -> Result<(), UnpackError> {
        self.own_named(dir, leaf, (entry.uid, entry.gid))?;
        let mut line = self.line(entry);
        let fd = self.fd(dir)?;
        let failed_at = |tree: &Tree<OnDisk>, operation, error| failed(operation, &tree.path_of(dir, leaf), error);
        if !entry.xattrs.is_empty() {
            let holder = XattrTarget::Name(proc_path(fd.as_fd(), leaf));
            let path = self.tree.path_of(dir, leaf);
            self.set_xattrs(&holder, entry, &path, &mut line)?;
        }
        if let Some(mode) = mode_on_creation {
            let wanted = self.mode_wanted(entry.mode, 0o600);
            if !entry.xattrs.is_empty() || wanted != mode & !self.form.defaults.umask {
                // fchmodat follows symbolic links, so that the way leads over a descriptor of the thing itself.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let thing = rustix::fs::openat(&*fd, leaf, flags, Mode::empty())
                    .map_err(|e| failed_at(&self.tree, "opening", e))?;
                let path = format!("/proc/self/fd/{}", thing.as_raw_fd());
                rustix::fs::chmodat(rustix::fs::CWD, path, Mode::from_raw_mode(wanted), AtFlags::empty())
                    .map_err(|e| failed_at(&self.tree, "setting the mode of", e))?;
            }
            line.mode = (wanted != entry.mode).then_some(entry.mode);
        }
        if line.says_something() {
            let path = self.tree.path_of(dir, leaf);
            self.defer(&path, line)?;
        }
        let times = timestamps(entry.mtime, entry.atime);
        rustix::fs::utimensat(&*fd, leaf, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed_at(&self.tree, "setting the times of", e))?;
        if !entry.xattrs.is_empty() {
            self.count_blocks(dir, leaf)?;
        }
        Ok(())
    }

    /// The attributes of a directory that has an entry. Mode, times and default access control list wait for the end,
    /// because what is made in the directory would change them or suffer from them.
    pub(super) fn dress_directory(&mut self, entry: &Entry, id: Id) -> Result<(), UnpackError> {
        let mut line = self.line(entry);
        let wanted = self.mode_wanted(entry.mode, 0o700);
        line.mode = (wanted != entry.mode).then_some(entry.mode);
        let node = &mut self.tree.node_mut(id).own;
        node.mode = wanted;
        node.mtime = entry.mtime;
        node.atime = entry.atime.unwrap_or(entry.mtime).max(entry.mtime);
        if !entry.xattrs.is_empty() {
            let fd = self.fd(id)?;
            let path = self.tree.path(id);
            if self.set_xattrs(&XattrTarget::Fd(fd.as_fd()), entry, &path, &mut line)? {
                self.tree.node_mut(id).own.mode_on_disk = None;
            }
            self.hold_default_acl(entry, id)?;
        }
        if line.says_something() {
            let path = self.tree.path(id);
            self.defer(&path, line)?;
        }
        Ok(())
    }

    /// Keeps the default access control list until everything in the directory is made.
    fn hold_default_acl(&mut self, entry: &Entry, id: Id) -> Result<(), UnpackError> {
        let Some((_, value)) = entry.xattrs.iter().find(|(name, _)| name == DEFAULT_ACL) else { return Ok(()) };
        self.count_default_acl(entry, value.len())?;
        self.tree.node_mut(id).own.default_acl = Some(value.as_slice().into());
        Ok(())
    }

    /// Takes the attributes away that an earlier entry of the same directory has set.
    pub(super) fn strip_xattrs(&mut self, fd: BorrowedFd<'_>, id: Id) -> Result<(), UnpackError> {
        self.tree.node_mut(id).own.default_acl = None;
        let names = XattrFile::Open(fd).names().map_err(|e| failed("looking at", &self.tree.path(id), e))?;
        for name in names.iter().filter(|name| !is_foreign(name) && !name.starts_with(b"security.selinux")) {
            rustix::fs::fremovexattr(fd, name.as_slice())
                .map_err(|e| failed("removing an extended attribute of", &self.tree.path(id), e))?;
        }
        Ok(())
    }

    /// Sets what may be set. `true` = an access control list is among it, which changes the mode.
    fn set_xattrs(
        &mut self,
        holder: &XattrTarget<'_>,
        entry: &Entry,
        path: &[u8],
        line: &mut DeferredLine<'_>,
    ) -> Result<bool, UnpackError> {
        let mut acl = false;
        for (name, value) in &entry.xattrs {
            if self.skips_foreign(name, path) {
                continue;
            }
            if name == DEFAULT_ACL && entry.kind == Kind::Directory {
                continue;
            }
            if !self.options.privileged && name.starts_with(b"security.") {
                line.add_xattr(name, value);
                continue;
            }
            match holder.set(name, value) {
                Ok(()) => acl |= name == ACCESS_ACL,
                Err(Errno::OPNOTSUPP) => self.skip_xattr(name, path, NOT_HELD),
                // user.* is for files and directories; lists of default rights are for directories.
                Err(Errno::PERM) if name.starts_with(b"user.") && matches!(holder, XattrTarget::Name(_)) => {
                    self.skip_xattr(name, path, WRONG_KIND);
                }
                Err(Errno::ACCESS) if name == DEFAULT_ACL => {
                    self.skip_xattr(name, path, WRONG_KIND);
                }
                Err(Errno::PERM) if !self.options.privileged => line.add_xattr(name, value),
                Err(error) => {
                    return Err(failed_xattr(name, path, error));
                }
            }
        }
        Ok(acl)
    }

    /// The line of an entry whose owner an ordinary user cannot set.
    fn line(&self, entry: &Entry) -> DeferredLine<'static> {
        let owner = (entry.uid, entry.gid);
        let deferred = !self.options.privileged && owner != (0, 0);
        DeferredLine { kind: entry.kind.word(), owner: deferred.then_some(owner), ..DeferredLine::default() }
    }

    fn defer<'l>(&mut self, path: &'l [u8], line: DeferredLine<'l>) -> Result<(), UnpackError> {
        if !line.says_something() {
            return Ok(());
        }
        self.form.deferred.write(path, line).map_err(|e| failed("deferring", path, e))
    }

    /// Adds what a thing takes on disk, as the file system says.
    pub(super) fn count_blocks(&mut self, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        if let Some(stat) = self.stat(dir, leaf)? {
            self.outcome.disk_bytes += bytes_on_disk(&stat);
        }
        Ok(())
    }
}

fn proc_path(dir: BorrowedFd<'_>, leaf: &[u8]) -> CString {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(leaf);
    CString::new(path).expect("names with NUL bytes are refused before")
}
