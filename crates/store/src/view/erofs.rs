//! A layer that is an EROFS file, as a view reads it: by the numbers of inodes, for any content. Owners and devices are those of
//! the layer.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use erofs::{InodeInfo, Nid, Reader};
use rustix::fs::{CWD, Mode, OFlags};

use super::attributes::{Kind, LayerNode, Stat};
use crate::disk::xattr::is_of_overlayfs;
use crate::recipe;
use crate::unpack::OPAQUE;

/// The open EROFS file of a layer.
#[derive(Debug)]
pub(super) struct ErofsLayer(Reader<File>);

impl ErofsLayer {
    pub(super) fn open(directory: &OwnedFd) -> io::Result<Self> {
        Ok(Self(recipe::read_erofs(directory.as_fd())?))
    }

    /// Opens the EROFS file at a path.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
        Ok(Self(Reader::open(file)?))
    }

    pub(super) fn root(&self) -> io::Result<LayerNode> {
        Ok(found(&self.0.inode(self.0.root())?))
    }

    pub(super) fn child(&self, dir: u64, name: &[u8]) -> io::Result<Option<LayerNode>> {
        let Some(entry) = self.0.lookup(&self.0.inode(Nid(dir))?, name)? else { return Ok(None) };
        Ok(Some(found(&self.0.inode(entry.nid)?)))
    }

    pub(super) fn list(&self, dir: u64) -> io::Result<Vec<(Vec<u8>, LayerNode)>> {
        let mut all = Vec::new();
        for entry in self.0.entries(&self.0.inode(Nid(dir))?)? {
            let entry = entry?;
            all.push((entry.name, found(&self.0.inode(entry.nid)?)));
        }
        Ok(all)
    }

    pub(super) fn is_opaque(&self, dir: u64) -> io::Result<bool> {
        let inode = self.0.inode(Nid(dir))?;
        for name in OPAQUE {
            if self.0.xattr(&inode, name.as_bytes())?.is_some_and(|value| value == b"y") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn target(&self, link: u64) -> io::Result<Vec<u8>> {
        Ok(self.0.link_target(&self.0.inode(Nid(link))?)?)
    }

    pub(super) fn xattrs(&self, at: u64) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = self.0.xattrs(&self.0.inode(Nid(at))?)?;
        all.retain(|(name, _)| !is_of_overlayfs(name));
        Ok(all)
    }

    /// The EROFS file itself, and a file of it.
    pub(super) fn inode(&self, file: u64) -> io::Result<(&Reader<File>, InodeInfo)> {
        Ok((&self.0, self.0.inode(Nid(file))?))
    }

    /// Returns the number of blocks of the EROFS file.
    pub(super) fn blocks(&self) -> io::Result<u32> {
        u32::try_from(self.0.size() / erofs::BLOCK).map_err(io::Error::other)
    }

    pub(super) fn content(&self, file: u64) -> io::Result<ErofsContent<'_>> {
        let inode = self.0.inode(Nid(file))?;
        if inode.kind != erofs::Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file any more"));
        }
        Ok(ErofsContent { erofs: &self.0, inode })
    }
}

/// An open file of an EROFS file.
#[derive(Debug)]
pub(super) struct ErofsContent<'a> {
    erofs: &'a Reader<File>,
    inode: InodeInfo,
}

impl ErofsContent<'_> {
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.erofs.read(&self.inode, offset, buffer)?)
    }

    pub(super) fn hole(&self, offset: u64) -> io::Result<u64> {
        Ok(self.erofs.hole(&self.inode, offset)?)
    }
}

fn found(inode: &InodeInfo) -> LayerNode {
    let kind = match inode.kind {
        _ if inode.is_whiteout() => Kind::Whiteout,
        erofs::Kind::File => Kind::File,
        erofs::Kind::Directory => Kind::Directory,
        erofs::Kind::Symlink => Kind::Symlink,
        erofs::Kind::Char => Kind::Char,
        erofs::Kind::Block => Kind::Block,
        erofs::Kind::Fifo => Kind::Fifo,
        erofs::Kind::Socket => Kind::Socket,
    };
    let stat = Stat {
        kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        // The size of a directory's names is no property of a layer.
        size: if kind == Kind::Directory { 0 } else { inode.size },
        links: inode.links,
        device: inode.device,
        mtime: inode.mtime,
        inode: inode.nid.0,
    };
    LayerNode { stat, nid: inode.nid.0 }
}
