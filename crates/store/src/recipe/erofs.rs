//! The bytes of files that are in an EROFS file, by the numbers of their inodes: names may have changed, inodes never do.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use erofs::{InodeInfo, Kind, Nid, ReadError, Reader};
use rustix::fs::{Mode, OFlags};

use super::error::{RecipeError, damaged};
use crate::disk::layout::EROFS_FILE;

/// The EROFS file of a layer, opened when it is first needed.
pub(super) struct Inodes<'a> {
    layer_dir: BorrowedFd<'a>,
    erofs: Option<Reader<File>>,
}

impl<'a> Inodes<'a> {
    pub(super) fn new(layer_dir: BorrowedFd<'a>) -> Self {
        Self { layer_dir, erofs: None }
    }

    fn erofs(&mut self) -> Result<&Reader<File>, RecipeError> {
        match &mut self.erofs {
            Some(erofs) => Ok(erofs),
            none => Ok(none.insert(open(self.layer_dir)?)),
        }
    }

    /// A file that has these bytes.
    pub(super) fn file(&mut self, nid: u64, offset: u64, len: u64) -> Result<InodeInfo, RecipeError> {
        let inode = self.erofs()?.inode(Nid(nid)).map_err(failed)?;
        let is_long_enough = offset.checked_add(len).is_some_and(|end| end <= inode.size);
        if inode.kind != Kind::File || !is_long_enough {
            return Err(damaged(format!("inode {nid} of the image is not what it was")));
        }
        Ok(inode)
    }

    pub(super) fn copy(
        &mut self,
        (nid, offset, len): (u64, u64, u64),
        buffer: &mut [u8],
        out: &mut dyn Write,
    ) -> Result<(), RecipeError> {
        let inode = self.file(nid, offset, len)?;
        let erofs = self.erofs()?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let read = erofs.read(&inode, at, &mut buffer[..most]).map_err(failed)?;
            if read == 0 {
                return Err(damaged(format!("inode {nid} of the image is not what it was")));
            }
            out.write_all(&buffer[..read]).map_err(RecipeError::Write)?;
            at += read as u64;
        }
        Ok(())
    }
}

/// Opens the file of a layer's EROFS file. A link is not followed.
pub(crate) fn open_erofs(layer_dir: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    // Without O_NONBLOCK the open of a fifo in the file's place would block.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(layer_dir, EROFS_FILE, flags, Mode::empty())?))
}

/// Opens a layer's EROFS file to be read.
pub(crate) fn read_erofs(layer_dir: BorrowedFd<'_>) -> io::Result<Reader<File>> {
    Ok(Reader::open(open_erofs(layer_dir, OFlags::RDONLY)?)?)
}

fn open(layer_dir: BorrowedFd<'_>) -> Result<Reader<File>, RecipeError> {
    let read = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => damaged("the image is gone"),
        _ => RecipeError::Read { path: EROFS_FILE.into(), source },
    };
    let file = open_erofs(layer_dir, OFlags::RDONLY).map_err(read)?;
    Reader::open(file).map_err(failed)
}

/// Checks every inode and name of an EROFS file, without reading the content of files.
pub(crate) fn check_erofs(layer_dir: BorrowedFd<'_>) -> Result<(), RecipeError> {
    open(layer_dir)?.check().map(drop).map_err(failed)
}

fn failed(error: ReadError) -> RecipeError {
    match error {
        ReadError::Source(source) => RecipeError::Read { path: EROFS_FILE.into(), source },
        error => damaged(error.to_string()),
    }
}
