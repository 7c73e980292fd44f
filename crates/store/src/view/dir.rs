//! A layer that is a directory tree, read beneath its directory's descriptor: no symbolic link is followed, no mount crossed.
//! Where an ordinary user unpacked it, attributes that the files cannot have are taken from the records next to them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attributes::{Kind, LayerNode, Stat};
use super::deferred::Deferred;
use super::path::join;
use crate::disk::beneath::Beneath;
use crate::disk::layout::FS;
use crate::disk::xattr::{XattrFile, is_of_overlayfs};
use crate::unpack::{self};

/// An open layer.
#[derive(Debug)]
pub(super) struct DirLayer {
    fs: OwnedFd,
    beneath: Beneath,
    /// Recorded owners and the like; `None` where the files have them.
    deferred: Option<Deferred>,
}

impl DirLayer {
    pub(super) fn open(layer: &OwnedFd, owners_on_disk: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fs = rustix::fs::openat(layer, FS, flags, Mode::empty())?;
        let deferred = if owners_on_disk { None } else { Some(Deferred::read(layer.as_fd())?) };
        Ok(Self { fs, beneath: Beneath::default(), deferred })
    }

    /// Opens the tree at a path, whose files have their owners themselves.
    pub(super) fn at(tree: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fs = rustix::fs::openat(CWD, tree, flags, Mode::empty())?;
        Ok(Self { fs, beneath: Beneath::default(), deferred: None })
    }

    /// Looks up a path. The empty path is the root.
    pub(super) fn find(&self, path: &[u8]) -> io::Result<Option<LayerNode>> {
        let stat = match self.reach(path) {
            Ok(fd) => rustix::fs::fstat(&fd)?,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let hidden = self.deferred.as_ref().is_some_and(|deferred| deferred.hides(path));
                return Ok(hidden.then(whiteout));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some(LayerNode { stat: self.stat(path, &stat)?, nid: 0 }))
    }

    /// Lists the directory at a path, in no order.
    pub(super) fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, LayerNode)>> {
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let stat = rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            let stat = self.stat(&join(path, name), &stat)?;
            found.push((name.to_vec(), LayerNode { stat, nid: 0 }));
        }
        if let Some(deferred) = &self.deferred {
            for name in deferred.hidden_in(path) {
                match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => {}
                    Err(Errno::NOENT) => found.push((name.to_vec(), whiteout())),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(found)
    }

    pub(super) fn is_opaque(&self, path: &[u8]) -> io::Result<bool> {
        Ok(unpack::is_opaque(&self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?)?)
    }

    pub(super) fn target(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let fd = self.reach(path)?;
        Ok(rustix::fs::readlinkat(&fd, "", Vec::new())?.into_bytes())
    }

    /// Those that a layer may set.
    pub(super) fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let fd = self.reach(path)?;
        let mut found = XattrFile::Reached(fd.as_fd()).read(|name| !is_of_overlayfs(name))?;
        let told = self.deferred.as_ref().and_then(|deferred| deferred.of(path));
        found.extend(told.into_iter().flat_map(|told| told.xattrs.iter().cloned()));
        Ok(found)
    }

    /// The file at a path, for reading.
    pub(super) fn file(&self, path: &[u8]) -> io::Result<File> {
        // Without O_NONBLOCK the open of a fifo in the file's place would block.
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file any more"));
        }
        Ok(File::from(fd))
    }

    /// Opens the file itself, without following a symbolic link, only for being inspected.
    fn reach(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::PATH)
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        if path.is_empty() {
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return rustix::fs::openat(&self.fs, ".", flags, Mode::empty());
        }
        self.beneath.open(self.fs.as_fd(), path, flags)
    }

    fn stat(&self, path: &[u8], stat: &rustix::fs::Stat) -> io::Result<Stat> {
        let odd = |_| io::Error::new(io::ErrorKind::InvalidData, "its size or time is none");
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice if stat.st_rdev == 0 => Kind::Whiteout,
            FileType::CharacterDevice => Kind::Char,
            FileType::BlockDevice => Kind::Block,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Unknown => return Err(io::Error::new(io::ErrorKind::InvalidData, "its type is not known")),
        };
        let size = match kind {
            Kind::File | Kind::Symlink => u64::try_from(stat.st_size).map_err(odd)?,
            _ => 0,
        };
        let mut stat = Stat {
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
            mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).map_err(odd)?),
            inode: stat.st_ino,
        };
        if let Some(deferred) = &self.deferred {
            deferred.apply(path, &mut stat);
        }
        Ok(stat)
    }
}

/// Where the hole of a file ends that begins at `offset`. File systems that know none have none.
pub(super) fn hole(file: &File, offset: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(data.max(offset)),
        // No data follows.
        Err(Errno::NXIO) => Ok(file.metadata()?.len().max(offset)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(offset),
        Err(error) => Err(error.into()),
    }
}

fn whiteout() -> LayerNode {
    let stat = Stat { kind: Kind::Whiteout, mode: 0, ..Stat::empty_root() };
    LayerNode { stat, nid: 0 }
}
