//! Copies of what a view shows, into a directory of the file system: [`View::copy`].
//!
//! Nothing is written outside that directory, whatever the image holds and whichever process changes the directory meanwhile:
//! everything is made by name in a directory's descriptor, new files are created exclusively, and no symbolic link below the
//! directory is followed. Files replace everything but directories; directories are merged. A failure does not undo what was
//! copied, but a single file replaces another one only when it is whole.

mod dress;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::Kind;
use super::error::ViewError;
use super::path::join;
use super::{Node, View};
use crate::destination::temporary_name;
use crate::disk::beneath::Beneath;

/// Bytes copied at a time; as many zeros become a hole.
const BUFFER: usize = 256 << 10;
/// So many directories on the way down are held open. A tree can be deeper than a process may have files open.
const HELD: usize = 64;

/// How to copy.
#[derive(Clone, Copy)]
pub struct CopyOptions<'a> {
    /// Give things to their owners, and make devices. Takes the rights of root.
    pub privileged: bool,
    /// Of a directory that is copied without a name: what it is copied into becomes its copy, attributes included.
    pub whole: bool,
    /// Asked before every entry and between pieces of big files.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// Counts of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, their further names not counted.
    pub files: u64,
    /// Directories, those that were there already included.
    pub directories: u64,
    /// Symbolic links, further names of files, devices, pipes.
    pub others: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Counts of what the copy lacks.
    pub lacks: Lacks,
}

/// Counts of what could not be set or made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Files that belong to the user who copied them.
    pub owners: u64,
    /// Files without their set-user-id or set-group-id bits, which must not be given to another owner.
    pub special_modes: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Devices.
    pub devices: u64,
    /// Sockets: they are nothing without their process.
    pub sockets: u64,
    /// Whiteouts of a single layer.
    pub whiteouts: u64,
}

impl View {
    /// Copies something: under `name` in the directory `into`, or, of a directory without a name, what it holds.
    ///
    /// # Errors
    /// The view cannot be read, [`ViewError::Write`], [`ViewError::InTheWay`] or [`ViewError::Cancelled`]. Of a directory, what
    /// was copied so far stays.
    pub fn copy(
        &self,
        node: &Node,
        into: &Path,
        name: Option<&[u8]>,
        options: CopyOptions<'_>,
    ) -> Result<Copied, ViewError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat(CWD, into, flags, Mode::empty()).map_err(|error| ViewError::Write {
            operation: "open",
            path: into.to_owned(),
            source: error.into(),
        })?;
        let mut copier = Copier {
            view: self,
            options,
            base,
            place: into.to_owned(),
            beneath: Beneath::default(),
            user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            copied: Copied::default(),
            names: HashMap::new(),
            buffer: vec![0; BUFFER],
        };
        match name {
            Some(name) => copier.tree(node, name)?,
            None => {
                let base = if options.whole { Some(copier.open_base()?) } else { None };
                copier.content(node, Vec::new(), base)?;
            }
        }
        Ok(copier.copied)
    }
}

/// A directory that is being copied.
struct CopyFrame {
    node: Node,
    /// Where it is below the base; empty for the base itself.
    at: Vec<u8>,
    /// The copy, while it is held.
    fd: Option<OwnedFd>,
    left: std::vec::IntoIter<Node>,
}

struct Copier<'a> {
    view: &'a View,
    options: CopyOptions<'a>,
    base: OwnedFd,
    /// The base in words.
    place: PathBuf,
    beneath: Beneath,
    user: (u32, u32),
    copied: Copied,
    /// Where things with several names were copied to.
    names: HashMap<(usize, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

impl Copier<'_> {
    /// Copies something and all below it to a path of one name.
    fn tree(&mut self, node: &Node, name: &[u8]) -> Result<(), ViewError> {
        let base = self.open_base()?;
        if node.stat.kind != Kind::Directory {
            return self.single(base.as_fd(), node, name);
        }
        let fd = self.directory(base.as_fd(), name, name)?;
        self.content(node, name.to_vec(), Some(fd))
    }

    /// Copies something that is no directory under a name. What has the name stays as it is until the copy is whole.
    fn single(&mut self, base: BorrowedFd<'_>, node: &Node, name: &[u8]) -> Result<(), ViewError> {
        let temporary = temporary_name();
        let before = self.copied.files + self.copied.others;
        let result = self.thing(base, node, temporary.as_bytes(), name).and_then(|()| {
            if self.copied.files + self.copied.others == before {
                // Nothing was made that could have the name.
                return Ok(());
            }
            match rustix::fs::renameat(base, &temporary, base, name) {
                Err(Errno::ISDIR) => Err(self.a_directory_stays(name)),
                renamed => renamed.map_err(|error| self.failed("create", name, error)),
            }
        });
        if result.is_err() {
            // Where it was renamed there is nothing under this name.
            let _ = rustix::fs::unlinkat(base, &temporary, AtFlags::empty());
        }
        result
    }

    /// Copies what is in a directory; with its copy given, its attributes as well.
    fn content(&mut self, node: &Node, at: Vec<u8>, fd: Option<OwnedFd>) -> Result<(), ViewError> {
        let dressed = fd.is_some();
        let left = self.view.entries(node)?.into_iter();
        let mut frames = vec![CopyFrame { node: node.clone(), at, fd, left }];
        while let Some(depth) = frames.len().checked_sub(1) {
            if (self.options.cancelled)() {
                return Err(ViewError::Cancelled);
            }
            let fd = match frames[depth].fd.take() {
                Some(fd) => fd,
                None => self.reopen(&frames[depth].at)?,
            };
            let Some(next) = frames[depth].left.next() else {
                let frame = frames.pop().expect("there is one");
                if dressed || !frames.is_empty() {
                    self.dress_open(fd.as_fd(), &frame.node, &frame.at)?;
                    self.copied.directories += 1;
                }
                continue;
            };
            let name = next.name();
            let path = join(&frames[depth].at, name);
            if next.stat.kind != Kind::Directory {
                self.thing(fd.as_fd(), &next, name, &path)?;
                frames[depth].fd = Some(fd);
                continue;
            }
            let below = self.directory(fd.as_fd(), name, &path)?;
            frames[depth].fd = Some(fd);
            if let Some(far) = frames.len().checked_sub(HELD) {
                frames[far].fd = None;
            }
            let left = self.view.entries(&next)?.into_iter();
            frames.push(CopyFrame { node: next, at: path, fd: Some(below), left });
        }
        Ok(())
    }

    /// A directory, new or there already, open for reading.
    fn directory(&self, dir: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<OwnedFd, ViewError> {
        match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.failed("create the directory", path, error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Err(self.in_the_way(path, "is no directory", "a directory does not replace it"))
            }
            opened => opened.map_err(|error| self.failed("open the directory", path, error)),
        }
    }

    /// Anything but a directory.
    fn thing(&mut self, dir: BorrowedFd<'_>, node: &Node, name: &[u8], path: &[u8]) -> Result<(), ViewError> {
        match node.stat.kind {
            Kind::Socket => {
                self.copied.lacks.sockets += 1;
                return Ok(());
            }
            Kind::Whiteout => {
                self.copied.lacks.whiteouts += 1;
                return Ok(());
            }
            Kind::Char | Kind::Block if !self.options.privileged => {
                self.copied.lacks.devices += 1;
                return Ok(());
            }
            _ => {}
        }
        let identity = node.identity().filter(|_| node.stat.links > 1);
        if let Some(identity) = identity {
            if self.link(dir, identity, name, path)? {
                self.copied.others += 1;
                return Ok(());
            }
            self.names.insert(identity, path.to_vec());
        }
        match node.stat.kind {
            Kind::File => self.file(dir, node, name, path),
            Kind::Symlink => self.symlink(dir, node, name, path),
            _ => self.special(dir, node, name, path),
        }
    }

    /// Another name of what was copied before. `false`: it is to be copied by itself.
    fn link(&self, dir: BorrowedFd<'_>, identity: (usize, u64), name: &[u8], path: &[u8]) -> Result<bool, ViewError> {
        let Some(first) = self.names.get(&identity) else { return Ok(false) };
        let (above, leaf) = match first.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&first[..slash], &first[slash + 1..]),
            None => (&b""[..], first.as_slice()),
        };
        // A directory may be closed to its owner by now, and a file have as many names as the file system allows.
        let Ok(from) = self.reopen(above) else { return Ok(false) };
        let make = || rustix::fs::linkat(&from, leaf, dir, name, AtFlags::empty());
        match self.make(dir, name, path, make) {
            Ok(()) => Ok(true),
            Err(ViewError::Write { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn file(&mut self, dir: BorrowedFd<'_>, node: &Node, name: &[u8], path: &[u8]) -> Result<(), ViewError> {
        let content = self.view.file(node)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(self.make(dir, name, path, open)?);
        let (mut at, mut hole) = (0, false);
        loop {
            if (self.options.cancelled)() {
                return Err(ViewError::Cancelled);
            }
            // Holes are not read; they may be large.
            let end = content.hole(at)?.min(node.stat.size);
            if end > at {
                (at, hole) = (end, true);
                continue;
            }
            let length = base::fill(&mut self.buffer, at, |piece, from| content.read_at(from, piece))?;
            if length == 0 {
                break;
            }
            let bytes = &self.buffer[..length];
            hole = length == BUFFER && bytes.iter().all(|byte| *byte == 0);
            if !hole {
                file.write_all_at(bytes, at).map_err(|error| self.failed("write", path, error))?;
            }
            at += length as u64;
        }
        if at != node.stat.size {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file is not as long as it says");
            return Err(self.view.failed(node.parts[0].layer, &node.path, error));
        }
        if hole {
            file.set_len(at).map_err(|error| self.failed("write", path, error))?;
        }
        self.dress_open(file.as_fd(), node, path)?;
        self.copied.files += 1;
        self.copied.bytes += at;
        Ok(())
    }

    fn symlink(&mut self, dir: BorrowedFd<'_>, node: &Node, name: &[u8], path: &[u8]) -> Result<(), ViewError> {
        let target = self.view.target(node)?;
        self.make(dir, name, path, || rustix::fs::symlinkat(&target[..], dir, name))?;
        self.dress_named(dir, node, name, path)?;
        self.copied.others += 1;
        Ok(())
    }

    fn special(&mut self, dir: BorrowedFd<'_>, node: &Node, name: &[u8], path: &[u8]) -> Result<(), ViewError> {
        let kind = match node.stat.kind {
            Kind::Char => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        let device = rustix::fs::makedev(node.stat.device.0, node.stat.device.1);
        let make = || match rustix::fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, device) {
            // A container's root may make none.
            Err(Errno::PERM) if kind != FileType::Fifo => Ok(false),
            made => made.map(|()| true),
        };
        if !self.make(dir, name, path, make)? {
            self.copied.lacks.devices += 1;
            return Ok(());
        }
        self.dress_named(dir, node, name, path)?;
        self.copied.others += 1;
        Ok(())
    }

    /// Makes something under a name; an existing file that is no directory is removed first.
    fn make<T>(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, ViewError> {
        let made = match make() {
            Err(Errno::EXIST) => {
                match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR) => return Err(self.a_directory_stays(path)),
                    Err(error) => return Err(self.failed("replace", path, error)),
                }
                make()
            }
            made => made,
        };
        made.map_err(|error| self.failed("create", path, error))
    }

    fn open_base(&self) -> Result<OwnedFd, ViewError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.base, ".", flags, Mode::empty()).map_err(|error| self.failed("open", b"", error))
    }

    /// A directory below the base, reached without following anything.
    fn reopen(&self, path: &[u8]) -> Result<OwnedFd, ViewError> {
        if path.is_empty() {
            return self.open_base();
        }
        self.beneath.directory(self.base.as_fd(), path).map_err(|error| self.failed("open the directory", path, error))
    }

    fn failed(&self, operation: &'static str, path: &[u8], source: impl Into<io::Error>) -> ViewError {
        ViewError::Write { operation, path: self.path_of(path), source: source.into() }
    }

    fn a_directory_stays(&self, path: &[u8]) -> ViewError {
        self.in_the_way(path, "is a directory", "nothing but a directory replaces it")
    }

    fn in_the_way(&self, path: &[u8], there: &'static str, kept: &'static str) -> ViewError {
        ViewError::InTheWay { path: self.path_of(path), there, kept }
    }

    fn path_of(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.place.clone() } else { self.place.join(std::ffi::OsStr::from_bytes(path)) }
    }
}
