//! The EROFS format: a tree into one file in one pass ([`Writer`]), attributes of directories that are known later
//! ([`patch`]), and that file read without mounting it. Uncompressed, blocks of 4096 bytes, made for Linux 5.15 and later.
//!
//! It refuses to know where bytes go and come from ([`Sink`], [`Source`]), what a layer is, and the clock. Called by the store.
//!
//! ```
//! use imagelet_erofs::{Attributes, Options, Reader, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spill = Box::new(|| Err(std::io::Error::other("a small tree fits into memory")));
//! let options = Options { uuid: [1; 16], time: None, memory: Options::MEMORY, spill };
//! let mut writer = Writer::new(Vec::new(), options)?;
//! writer.begin_file(5, &Attributes { mode: 0o644, ..Attributes::default() })?;
//! writer.data(b"hello")?;
//! let (root, file) = (writer.root(), writer.end_file()?);
//! writer.link(root, b"greeting", file)?;
//! let (bytes, _) = writer.finish()?;
//!
//! let reader = Reader::open(bytes)?;
//! let file = reader.walk_path(b"greeting")?.ok_or("no such file")?;
//! let mut content = [0; 5];
//! reader.read(&file, 0, &mut content)?;
//! assert_eq!(&content, b"hello");
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub(crate) mod format;
mod patch;
mod reader;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod writer;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub use crate::patch::{PatchError, patch};
pub use crate::reader::{Checked, DirEntry, Entries, Extent, InodeInfo, ReadError, Reader, Xattr};
pub use crate::writer::{Device, DeviceBlock, Dir, Entry, Inode, Options, Special, WriteError, Writer, WrittenImage};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Name of the directory that a nested file tree lies in: see [`Writer::nested`].
pub const NESTED_ROOT: &str = "root";

/// Where an EROFS file is written to: from its beginning to its end, and a few places once more.
pub trait Sink {
    /// Writes at the end. The writer hands over long pieces (some hundred KiB, whole blocks): no buffer is needed below.
    ///
    /// # Errors
    /// The error of the sink; the writer is of no use after it.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes where something was appended before, or, when an EROFS file is patched, at its very end.
    ///
    /// # Errors
    /// As above.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// The source of an EROFS file's bytes.
pub trait Source {
    /// Reads at a place: fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// The error of the source.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Bytes in all.
    ///
    /// # Errors
    /// As above.
    fn size(&self) -> io::Result<u64>;
}

/// The file's position is where it is appended.
impl Sink for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

impl Sink for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let end = at.checked_add(bytes.len()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        if self.len() < end {
            self.resize(end, 0);
        }
        self[at..end].copy_from_slice(bytes);
        Ok(())
    }
}

impl Source for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Source for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.len(), |at| at.min(self.len()));
        let length = buffer.len().min(self.len() - from);
        buffer[..length].copy_from_slice(&self[from..from + length]);
        Ok(length)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(offset, buffer)
    }

    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buffer)
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }
}

/// The number of an inode: its place in the EROFS file, in units of 32 bytes. On 64-bit machines it is what `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nid(pub u64);

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device; a whiteout if it is 0:0.
    Char,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// The attributes of an inode other than its kind, its content and its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits with set-user-id, set-group-id and sticky: 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Seconds since 1970 (negative before it), and nanoseconds from there on.
    pub mtime: (i64, u32),
    /// Extended attributes by their full names, in any order, each name once. What [`can_hold`] says no to is an error.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// The attributes of a directory without an entry: 0755, 0:0, the beginning of 1970.
    #[must_use]
    pub fn implicit() -> Self {
        Self { mode: 0o755, ..Self::default() }
    }
}

/// Returns true if an inode of an EROFS file can have this extended attribute: the name begins with `user.`, `trusted.` or `security.` and
/// goes on for 1 to 255 bytes, or is one of the two of access control lists, and the value has at most 65,535 bytes.
#[must_use]
pub fn can_hold(name: &[u8], value: &[u8]) -> bool {
    format::xattr::split(name).is_some() && value.len() <= format::xattr::VALUE_MAX
}
