//! [`Files`]: a layer that is a directory tree, `fs/` in its private directory, as overlayfs takes it.
//!
//! Everything goes through directory file descriptors; no path string of the archive ever reaches a system call that
//! would follow a symbolic link. [`super::unpack`] calls it, with the rules of the modules above.

mod attributes;
mod content;
mod deferred;
mod descriptors;
mod displace;
mod finish;
mod implicit;
mod kernel_values;
mod link_tree;
mod new_file_defaults;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;

use super::error::{UnpackError, failed, recipe as of_recipe};
use super::form::{Form, There, Unpacker};
use super::options::UnpackOptions;
use super::outcome::UnpackOutcome;
use super::tree::Id;
use super::whiteout::OPAQUE;
use crate::disk::beneath::Beneath;
use crate::recipe;
use crate::tar::{Entry, Kind, Reader};

pub(crate) use deferred::{BELOW as DEFERRED_BELOW, FILE as DEFERRED};
use deferred::{Deferred, DeferredLine};
use descriptors::{Descriptors, OnDisk};
pub(crate) use implicit::{find, is_opaque, patch_implicit};
use kernel_values::{bytes_on_disk, timestamps};
pub(crate) use link_tree::link_tree;
use new_file_defaults::NewFileDefaults;

/// Name of the directory of the layer's files.
const FS: &str = "fs";

/// The files of one layer in the making.
pub(super) struct Files<'a> {
    layer_dir: BorrowedFd<'a>,
    descriptors: Descriptors,
    defaults: NewFileDefaults,
    deferred: Deferred,
    /// The directory to which replaced files are moved, once there is one.
    aside: Option<OwnedFd>,
    moved_aside: u64,
}

/// Begins with an empty `fs/`.
pub(super) fn unpacker<'a>(
    layer_dir: BorrowedFd<'a>,
    options: &'a UnpackOptions<'a>,
    beneath: Beneath,
) -> Result<Unpacker<'a, Files<'a>>, UnpackError> {
    let fs = beneath.directory(layer_dir, FS.as_bytes()).map_err(|e| failed("opening", FS.as_bytes(), e))?;
    let defaults = NewFileDefaults::prepare(fs.as_fd(), options.privileged)?;
    let files = Files {
        layer_dir,
        descriptors: Descriptors::new(fs, beneath),
        defaults,
        deferred: Deferred::new(layer_dir).map_err(|e| failed("opening", b"", e))?,
        aside: None,
        moved_aside: 0,
    };
    let recipe = recipe::Writer::create(layer_dir).map_err(of_recipe)?;
    let mut unpacker = Unpacker::new(files, OnDisk::new(0o755), recipe, options);
    unpacker.outcome = UnpackOutcome { inodes: 1, ..unpacker.outcome };
    unpacker.own_root()?;
    Ok(unpacker)
}

impl Unpacker<'_, Files<'_>> {
    /// An open descriptor of a directory of the layer.
    fn fd(&mut self, id: Id) -> Result<Rc<OwnedFd>, UnpackError> {
        let fd = self.form.descriptors.get(&mut self.tree, id);
        fd.map_err(|e| failed("opening", &self.tree.path(id), e))
    }

    /// Stats a name in a directory, without following it.
    fn stat(&mut self, dir: Id, leaf: &[u8]) -> Result<Option<Stat>, UnpackError> {
        let fd = self.fd(dir)?;
        match rustix::fs::statat(&*fd, leaf, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("looking at", &self.tree.path_of(dir, leaf), error)),
        }
    }

    /// Makes a new file in a directory; an existing one is moved aside.
    fn create<T>(
        &mut self,
        dir: Id,
        leaf: &[u8],
        operation: &'static str,
        make: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, UnpackError> {
        let fd = self.fd(dir)?;
        let made = match make(fd.as_fd()) {
            Err(Errno::EXIST) => {
                self.displace(dir, leaf)?;
                make(fd.as_fd())
            }
            other => other,
        };
        let made = made.map_err(|e| failed(operation, &self.tree.path_of(dir, leaf), e))?;
        self.outcome.inodes += 1;
        Ok(made)
    }

    /// Creates an empty file.
    fn create_file(&mut self, dir: Id, leaf: &[u8], mode: u32) -> Result<OwnedFd, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        self.create(dir, leaf, "creating", |fd| rustix::fs::openat(fd, leaf, flags, mode))
    }

    /// An empty file where an ordinary user cannot make a device.
    fn placeholder(&mut self, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        drop(self.create_file(dir, leaf, 0o600)?);
        let path = self.tree.path_of(dir, leaf);
        let line = DeferredLine {
            kind: entry.kind.word(),
            owner: Some((entry.uid, entry.gid)),
            mode: Some(entry.mode),
            device: Some(entry.device),
            ..DeferredLine::default()
        };
        self.form.deferred.write(&path, line).map_err(|e| failed("deferring", &path, e))?;
        let times = timestamps(entry.mtime, entry.atime);
        let fd = self.fd(dir)?;
        rustix::fs::utimensat(&*fd, leaf, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed("setting the times of", &path, e))
    }
}

impl Form for Files<'_> {
    type Node = OnDisk;

    fn find_entry(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Option<There>, UnpackError> {
        Ok(unpacker.stat(dir, leaf)?.map(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => There::Whiteout,
            FileType::Symlink => There::SymbolicLink,
            _ => There::Other,
        }))
    }

    fn target(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let fd = unpacker.fd(dir)?;
        let target = rustix::fs::readlinkat(&*fd, leaf, Vec::new())
            .map_err(|e| failed("reading the symbolic link", &unpacker.tree.path_of(dir, leaf), e))?;
        Ok(target.into_bytes())
    }

    fn directory_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        dir: Id,
        leaf: &[u8],
    ) -> Result<Option<OnDisk>, UnpackError> {
        const MODE: u32 = 0o755;
        let fd = unpacker.fd(dir)?;
        match rustix::fs::mkdirat(&*fd, leaf, Mode::from_raw_mode(MODE)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(failed("creating the directory", &unpacker.tree.path_of(dir, leaf), error)),
        }
        unpacker.outcome.inodes += 1;
        unpacker.own_named(dir, leaf, (0, 0))?;
        Ok(Some(OnDisk::new(MODE & !unpacker.form.defaults.umask)))
    }

    fn directory(
        unpacker: &mut Unpacker<'_, Self>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<OnDisk, UnpackError> {
        let mode = unpacker.mode_on_creation(entry.mode, 0o700);
        let make = |fd: BorrowedFd<'_>| rustix::fs::mkdirat(fd, leaf, Mode::from_raw_mode(mode));
        unpacker.create(dir, leaf, "creating the directory", make)?;
        unpacker.own_named(dir, leaf, (entry.uid, entry.gid))?;
        Ok(OnDisk::new(mode & !unpacker.form.defaults.umask))
    }

    fn dress(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, id: Id, again: bool) -> Result<(), UnpackError> {
        if again {
            let fd = unpacker.fd(id)?;
            if unpacker.tree.node(id).explicit {
                unpacker.strip_xattrs(fd.as_fd(), id)?;
            }
            if unpacker.options.privileged {
                unpacker.own_fd(fd.as_fd(), (entry.uid, entry.gid), true, &unpacker.tree.path(id))?;
            }
        }
        unpacker.dress_directory(entry, id)
    }

    fn file(
        unpacker: &mut Unpacker<'_, Self>,
        reader: &mut Reader<'_>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<(), UnpackError> {
        unpacker.regular_file(reader, entry, dir, leaf)
    }

    fn symlink(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let make = |fd: BorrowedFd<'_>| rustix::fs::symlinkat(&entry.link[..], fd, leaf);
        unpacker.create(dir, leaf, "creating the symbolic link", make)?;
        unpacker.dress_named(entry, dir, leaf, None)?;
        // Short targets stand in the inode on the usual file systems.
        if entry.link.len() >= 60 {
            unpacker.count_blocks(dir, leaf)?;
        }
        Ok(())
    }

    fn special(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let kind = match entry.kind {
            Kind::Char => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        if kind != FileType::Fifo && !unpacker.options.privileged {
            return unpacker.placeholder(entry, dir, leaf);
        }
        let mode = unpacker.mode_on_creation(entry.mode, 0o600);
        let device = rustix::fs::makedev(entry.device.0, entry.device.1);
        unpacker.create(dir, leaf, "creating the special file", |fd| {
            rustix::fs::mknodat(fd, leaf, kind, Mode::from_raw_mode(mode), device)
        })?;
        unpacker.dress_named(entry, dir, leaf, Some(mode))
    }

    fn link(unpacker: &mut Unpacker<'_, Self>, from: (Id, &[u8]), dir: Id, leaf: &[u8]) -> Result<bool, UnpackError> {
        let from_fd = unpacker.fd(from.0)?;
        let fd = unpacker.fd(dir)?;
        // Without AT_SYMLINK_FOLLOW: a link to a symbolic link is one to itself.
        let link = || rustix::fs::linkat(&*from_fd, from.1, &*fd, leaf, AtFlags::empty());
        let linked = match link() {
            Err(Errno::EXIST) => {
                unpacker.displace(dir, leaf)?;
                link()
            }
            other => other,
        };
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed("creating the hard link", &unpacker.tree.path_of(dir, leaf), error)),
        }
    }

    fn whiteout_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<bool, UnpackError> {
        let fd = unpacker.fd(dir)?;
        match rustix::fs::mknodat(&*fd, leaf, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(false),
            Err(Errno::PERM) if !unpacker.options.privileged => {
                let path = unpacker.tree.path_of(dir, leaf);
                let line = DeferredLine { kind: "whiteout", ..DeferredLine::default() };
                unpacker.form.deferred.write(&path, line).map_err(|e| failed("deferring", &path, e))?;
                return Ok(false);
            }
            Err(error) => return Err(failed("making a whiteout of", &unpacker.tree.path_of(dir, leaf), error)),
        }
        unpacker.outcome.inodes += 1;
        if unpacker.options.privileged {
            unpacker.own_named(dir, leaf, (entry.uid, entry.gid))?;
        }
        Ok(true)
    }

    fn make_opaque(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        let fd = unpacker.fd(id)?;
        let attribute = OPAQUE[usize::from(!unpacker.options.privileged)];
        rustix::fs::fsetxattr(fd.as_fd(), attribute, b"y", XattrFlags::empty())
            .map_err(|e| failed("making opaque", &unpacker.tree.path(id), e))
    }

    fn whiteouts(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<Vec<Vec<u8>>, UnpackError> {
        let fd = unpacker.fd(id)?;
        let io = |unpacker: &Unpacker<'_, Self>, error| failed("listing", &unpacker.tree.path(id), error);
        let listing = rustix::fs::Dir::read_from(&*fd).map_err(|e| io(unpacker, e))?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|e| io(unpacker, e))?;
            let may_be = matches!(entry.file_type(), FileType::CharacterDevice | FileType::Unknown);
            let name = entry.file_name().to_bytes();
            if may_be && Self::find_entry(unpacker, id, name)? == Some(There::Whiteout) {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn remove_whiteout(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let fd = unpacker.fd(dir)?;
        rustix::fs::unlinkat(&*fd, leaf, AtFlags::empty())
            .map_err(|e| failed("removing the whiteout of", &unpacker.tree.path_of(dir, leaf), e))?;
        unpacker.outcome.inodes -= 1;
        Ok(())
    }

    fn remove_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        let fd = unpacker.fd(unpacker.tree.parent(id))?;
        rustix::fs::unlinkat(&*fd, unpacker.tree.name(id), AtFlags::REMOVEDIR)
            .map_err(|e| failed("removing the directory", &unpacker.tree.path(id), e))?;
        unpacker.form.descriptors.close(&mut unpacker.tree, id);
        unpacker.outcome.inodes -= 1;
        Ok(())
    }

    fn discard_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        let name = unpacker.tree.name(id).to_vec();
        unpacker.displace(unpacker.tree.parent(id), &name)
    }

    fn finish(unpacker: &mut Unpacker<'_, Self>, _: &[Id]) -> Result<(), UnpackError> {
        unpacker.finish_directories()
    }

    fn end(self, outcome: &mut UnpackOutcome) -> Result<(), UnpackError> {
        if let Some(aside) = &self.aside {
            let stat = rustix::fs::fstat(aside).map_err(|e| failed("looking at", b"", e))?;
            outcome.disk_bytes += bytes_on_disk(&stat);
        }
        outcome.deferred = self.deferred.finish().map_err(|e| failed("writing", b"deferred.jsonl", e))?;
        Ok(())
    }
}
