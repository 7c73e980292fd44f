//! [`Writer`]: a tree into one EROFS image, in one pass.

mod error;

use std::fs::File;
use std::io;

pub use error::WriteError;

use crate::{Attributes, Kind, Nid, Sink};

/// How an image is written.
pub struct Options {
    /// The image's own identity.
    pub uuid: [u8; 16],
    /// What compact inodes have as their time: those whose time is this one take less space. `None`: the time of the first inode that comes.
    pub time: Option<(i64, u32)>,
    /// Bytes of memory for names and directories, above which they go to the file of `spill`. Some MiB at least are used in any case.
    pub memory: usize,
    /// Makes an empty file for what does not fit into memory, open to be read and written; asked once at most. It can be
    /// deleted by who made it as soon as it is open.
    pub spill: Box<dyn FnMut() -> io::Result<File> + Send>,
}

/// A directory of the tree that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dir(u32);

/// An inode that is no directory. It is complete but for its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    nid: Nid,
    kind: Kind,
    extended: bool,
}

impl Inode {
    /// Its number, which is what it will be in the image.
    #[must_use]
    pub fn nid(self) -> Nid {
        self.nid
    }

    /// What it is; never a directory.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.kind
    }
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir(Dir),
    /// Something else.
    Inode(Inode),
}

/// What has no content and no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A character device by major (12 bits) and minor (20 bits); 0:0 is a whiteout.
    Char(u32, u32),
    /// A block device.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the image: a multiple of a block.
    pub size: u64,
    /// Inodes that have a name, the root among them.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
}

/// Writes an image. After an error it is of no use.
pub struct Writer<S: Sink> {
    sink: S,
}

impl<S: Sink> Writer<S> {
    /// Begins an image with a root that nobody said anything of.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(sink: S, options: Options) -> Result<Self, WriteError> {
        drop(options);
        Ok(Self { sink })
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Dir {
        Dir(0)
    }

    /// Where the image goes to.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Begins a regular file of `size` bytes, all of which come through [`Self::data`], in order. Answers the inode's number.
    ///
    /// # Errors
    /// An attribute cannot be held, the image is full, the sink's.
    pub fn begin_file(&mut self, size: u64, attributes: &Attributes) -> Result<Nid, WriteError> {
        Err(WriteError::not_yet(size, attributes))
    }

    /// Begins a regular file that may have holes ([`Self::hole`]). One that turns out to have none is no different from others,
    /// but that its last bytes take a whole block.
    ///
    /// # Errors
    /// As of [`Self::begin_file`].
    pub fn begin_sparse_file(&mut self, size: u64, attributes: &Attributes) -> Result<Nid, WriteError> {
        Err(WriteError::not_yet(size, attributes))
    }

    /// The next bytes of the file that was begun.
    ///
    /// # Errors
    /// There are more than was said, or no file was begun; the sink's.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        Err(WriteError::not_yet(bytes.len() as u64, &Attributes::default()))
    }

    /// The next bytes of the file that was begun are zeros. In a sparse file they take no space, but up to the next whole block (or
    /// chunk, where files are longer than a gigabyte); in others they are written.
    ///
    /// # Errors
    /// As of [`Self::data`].
    pub fn hole(&mut self, length: u64) -> Result<(), WriteError> {
        Err(WriteError::not_yet(length, &Attributes::default()))
    }

    /// Ends the file that was begun. It has no name yet.
    ///
    /// # Errors
    /// Not all of its bytes came; the sink's.
    pub fn end_file(&mut self) -> Result<Inode, WriteError> {
        Err(WriteError::not_yet(0, &Attributes::default()))
    }

    /// A symbolic link, which has no name yet.
    ///
    /// # Errors
    /// The target is empty or has more than 4095 bytes; else as of [`Self::begin_file`].
    pub fn symlink(&mut self, target: &[u8], attributes: &Attributes) -> Result<Inode, WriteError> {
        Err(WriteError::not_yet(target.len() as u64, attributes))
    }

    /// A device, pipe or socket, which has no name yet.
    ///
    /// # Errors
    /// The device's number does not fit; else as of [`Self::begin_file`].
    pub fn special(&mut self, special: Special, attributes: &Attributes) -> Result<Inode, WriteError> {
        Err(WriteError::not_yet(u64::from(special == Special::Fifo), attributes))
    }

    /// A directory with this name, which replaces what had it. It is an implicit one until
    /// [`Self::set_directory`] says otherwise.
    ///
    /// # Errors
    /// The name is no name; the spill's.
    pub fn directory(&mut self, parent: Dir, name: &[u8]) -> Result<Dir, WriteError> {
        Err(WriteError::not_yet(name.len() as u64 + u64::from(parent.0), &Attributes::default()))
    }

    /// Says what a directory has. An implicit one gets room for other attributes, which [`crate::patch`] gives it.
    ///
    /// # Errors
    /// An attribute cannot be held; the spill's.
    pub fn set_directory(&mut self, dir: Dir, attributes: &Attributes, implicit: bool) -> Result<(), WriteError> {
        Err(WriteError::not_yet(u64::from(dir.0) + u64::from(implicit), attributes))
    }

    /// What was said of a directory, and whether it is an implicit one.
    ///
    /// # Errors
    /// The spill's.
    pub fn attributes(&mut self, dir: Dir) -> Result<(Attributes, bool), WriteError> {
        Err(WriteError::not_yet(u64::from(dir.0), &Attributes::default()))
    }

    /// What has this name.
    ///
    /// # Errors
    /// The spill's.
    pub fn look_up(&mut self, parent: Dir, name: &[u8]) -> Result<Option<Entry>, WriteError> {
        Err(WriteError::not_yet(name.len() as u64 + u64::from(parent.0), &Attributes::default()))
    }

    /// Gives an inode a name (one more, if it has one), and answers what had it and has it no longer: of a directory all that is below
    /// it is gone with it, and it must not be used again.
    ///
    /// # Errors
    /// The name is no name; the spill's.
    pub fn link(&mut self, parent: Dir, name: &[u8], inode: Inode) -> Result<Option<Entry>, WriteError> {
        Err(WriteError::not_yet(name.len() as u64 + u64::from(parent.0) + inode.nid.0, &Attributes::default()))
    }

    /// Takes a name away, and answers what had it, as [`Self::link`] does.
    ///
    /// # Errors
    /// The spill's.
    pub fn unlink(&mut self, parent: Dir, name: &[u8]) -> Result<Option<Entry>, WriteError> {
        Err(WriteError::not_yet(name.len() as u64 + u64::from(parent.0), &Attributes::default()))
    }

    /// Bytes of the image so far, data that is not yet in the sink among them.
    #[must_use]
    pub fn position(&self) -> u64 {
        0
    }

    /// Writes directories, numbers of names and the superblock, and gives the sink back.
    ///
    /// # Errors
    /// The sink's, the spill's; a file was not ended; one has too many names.
    pub fn finish(self) -> Result<(S, Written), WriteError> {
        Err(WriteError::not_yet(0, &Attributes::default()))
    }
}
