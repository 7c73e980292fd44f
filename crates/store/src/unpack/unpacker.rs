//! [`Unpacker`]: the state of one layer while it is unpacked, and the loop over its entries. What entries do stands in
//! the modules beside this one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::recipe::Writer;
use crate::tar::{Entry, Kind, Reader, shown};

use super::beneath::Beneath;
use super::deferred::Deferred;
use super::error::{UnpackError, failed, recipe};
use super::ground::Ground;
use super::name::{Meaning, Name};
use super::tree::{Id, Tree};
use super::{UnpackOptions, UnpackOutcome};

/// Name of the directory of the layer's files.
const FS: &str = "fs";

/// One layer in the making.
pub(super) struct Unpacker<'a> {
    pub(super) options: &'a UnpackOptions<'a>,
    pub(super) layer_dir: BorrowedFd<'a>,
    pub(super) tree: Tree,
    pub(super) ground: Ground,
    pub(super) recipe: Writer,
    pub(super) deferred: Deferred,
    pub(super) outcome: UnpackOutcome,
    /// The parent directory of the entry before, and where it led.
    pub(super) last_parent: Option<(Vec<u8>, Id)>,
    /// Whiteouts made so far; while there are none, a look can be saved.
    pub(super) whiteouts: u64,
    /// Where what is moved aside goes, once there is something.
    pub(super) aside: Option<OwnedFd>,
    pub(super) moved_aside: u64,
    pub(super) default_acl_bytes: usize,
    pub(super) warned_xattr: bool,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(
        layer_dir: BorrowedFd<'a>,
        options: &'a UnpackOptions<'a>,
        beneath: Beneath,
    ) -> Result<Self, UnpackError> {
        let fs = beneath.directory(layer_dir, FS.as_bytes()).map_err(|e| failed("opening", FS.as_bytes(), e))?;
        let ground = Ground::prepare(fs.as_fd(), options.privileged)?;
        let mut unpacker = Self {
            options,
            layer_dir,
            tree: Tree::new(fs, 0o755, beneath),
            ground,
            recipe: Writer::create(layer_dir).map_err(recipe)?,
            deferred: Deferred::new(layer_dir).map_err(|e| failed("opening", b"", e))?,
            outcome: UnpackOutcome { inodes: 1, exact: true, ..UnpackOutcome::default() },
            last_parent: None,
            whiteouts: 0,
            aside: None,
            moved_aside: 0,
            default_acl_bytes: 0,
            warned_xattr: false,
        };
        unpacker.own_root()?;
        Ok(unpacker)
    }

    /// Applies the whole archive.
    pub(super) fn run(mut self, reader: &mut Reader<'_>) -> Result<UnpackOutcome, UnpackError> {
        let mut entry = Entry::default();
        let mut name = Name::default();
        loop {
            self.check_cancelled()?;
            if !reader.next(&mut entry, &mut |bytes| self.recipe.raw(bytes))? {
                break;
            }
            self.outcome.entries += 1;
            match name.set(&entry.path, self.options.limits)? {
                Meaning::Ignored => {}
                Meaning::Root => self.root(&entry)?,
                Meaning::Opaque => self.opaque(&name)?,
                Meaning::Whiteout => self.whiteout(&entry, &name, name.hidden())?,
                Meaning::Thing => self.thing(reader, &entry, &name)?,
            }
        }
        self.finish(reader.offset())
    }

    fn thing(&mut self, reader: &mut Reader<'_>, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        match entry.kind {
            Kind::File => self.file(reader, entry, name),
            Kind::Directory => self.directory(entry, name),
            Kind::Symlink => self.symlink(entry, name),
            Kind::HardLink => self.hard_link(entry, name),
            // This is what overlayfs takes for a whiteout; made as it is, it would be one all the same.
            Kind::Char if entry.device == (0, 0) => self.whiteout(entry, name, name.leaf()),
            Kind::Char | Kind::Block | Kind::Fifo => self.special(entry, name),
        }
    }

    pub(super) fn check_cancelled(&self) -> Result<(), UnpackError> {
        if (self.options.cancelled)() { Err(UnpackError::Cancelled) } else { Ok(()) }
    }

    /// An open descriptor of a directory of the layer.
    pub(super) fn fd(&mut self, id: Id) -> Result<std::rc::Rc<OwnedFd>, UnpackError> {
        self.tree.fd(id).map_err(|e| failed("opening", &self.tree.path(id), e))
    }

    /// Looks at a name in a directory, without following it.
    pub(super) fn look(&mut self, dir: Id, leaf: &[u8]) -> Result<Option<Stat>, UnpackError> {
        let fd = self.fd(dir)?;
        match rustix::fs::statat(&*fd, leaf, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("looking at", &self.tree.path_of(dir, leaf), error)),
        }
    }

    /// Makes something new in a directory; what is there already and is no directory of the new one's kind is moved
    /// aside, because the later entry of a path wins.
    pub(super) fn create<T>(
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
        made.map_err(|e| failed(operation, &self.tree.path_of(dir, leaf), e))
    }

    /// Creates an empty file, which must not exist.
    pub(super) fn create_file(&mut self, dir: Id, leaf: &[u8], mode: u32) -> Result<OwnedFd, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let fd = self.create(dir, leaf, "creating", |fd| rustix::fs::openat(fd, leaf, flags, mode))?;
        self.outcome.inodes += 1;
        Ok(fd)
    }

    /// Takes a new directory into the tree, within the limits.
    pub(super) fn add_directory(&mut self, dir: Id, leaf: &[u8], mode: Option<u32>) -> Result<Id, UnpackError> {
        let limits = self.options.limits;
        let most = limits.directories.min(u64::from(u32::MAX));
        let depth = self.tree.depth(dir) + 1;
        let over = if self.tree.len() as u64 >= most {
            Some(("directories up to here", most, most + 1))
        } else if depth > limits.path_depth {
            Some(("components in its path", limits.path_depth as u64, depth as u64))
        } else {
            None
        };
        if let Some((limit_name, limit, seen)) = over {
            let subject = format!("layer entry {:?}", shown(&self.tree.path_of(dir, leaf)));
            return Err(UnpackError::Limit { subject, limit_name, limit, seen });
        }
        let id = self.tree.add(dir, leaf, mode);
        self.outcome.inodes += 1;
        Ok(id)
    }
}

/// Whether this is a whiteout of overlayfs.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}
