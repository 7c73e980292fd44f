//! [`Writer`]: a tree into one EROFS file, in one pass.
//!
//! Data goes out as it comes, inodes with it, packed with short files and the ends of long ones. Directories are kept (in memory, beyond
//! a budget in a temporary file) and are written in the end. An inode is never moved: its number is known when it
//! begins. It does not know what the tree is for; the store calls it.

mod blobs;
mod check;
mod content;
mod devices;
mod dirents;
mod dirs;
mod elsewhere;
mod entry;
mod error;
mod finish;
mod layout;
mod links;
mod names;
mod output;
mod parts;
mod run;
mod spill;
mod table;
mod xattrs;

use std::fs::File;
use std::io;

pub(crate) use self::check::check_attributes;
use self::check::check_name;
pub use devices::{Device, DeviceBlock};
pub use entry::{Dir, Entry, Inode};
pub use error::WriteError;
pub use finish::WrittenImage;

use self::blobs::Blobs;
use self::content::Content;
use self::devices::Devices;
use self::dirs::{Dirs, Record};
use self::finish::FileSummary;
use self::links::Links;
use self::names::Names;
use self::output::Output;
use self::parts::Parts;
use self::spill::Spill;
use self::xattrs::Xattrs;
use crate::format::inode::{self, Layout, RawInode};
use crate::format::{NO_BLOCK, SLOT};
use crate::{Attributes, Kind, NESTED_ROOT, Nid, Sink};

/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

/// How an EROFS file is written.
pub struct Options {
    /// The EROFS file's own identity.
    pub uuid: [u8; 16],
    /// The time of compact inodes: those whose time is this one take less space. `None`: the time of the first inode that comes.
    pub time: Option<(i64, u32)>,
    /// Bytes of memory for names and directories, above which they go to the file of `spill`. Some MiB at least are used in any case.
    pub memory: usize,
    /// Makes an empty file for what does not fit into memory, open to be read and written; asked once at most. It can be
    /// deleted by who made it as soon as it is open.
    pub spill: Box<dyn FnMut() -> io::Result<File> + Send>,
}

impl Options {
    /// A good value of [`Options::memory`]: 100,000 entries stay in memory, and all of the writer takes less than twice as much.
    pub const MEMORY: usize = 16 << 20;
}

/// A file without content and target.
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

/// Writes an EROFS file. After an error it is of no use.
pub struct Writer<S: Sink> {
    parts: Parts<S>,
    /// The file that was begun.
    content: Option<Content>,
    /// The inode that was written last and has no name yet.
    unnamed: Option<Inode>,
    /// Inodes that are no directories.
    inodes: u64,
    chunked: bool,
    devices: Devices,
    uuid: [u8; 16],
    /// Directory that the file tree lies in.
    root: Dir,
    broken: bool,
}

impl<S: Sink> Writer<S> {
    /// Begins an EROFS file whose file tree lies in the directory [`NESTED_ROOT`] and not at the top. If the file is not mounted, a
    /// path to that directory does not exist, and an empty mount point is never taken for the tree. [`Reader`](crate::Reader) returns the
    /// directory as the root.
    ///
    /// # Errors
    /// The spill's.
    pub fn nested(sink: S, options: Options) -> Result<Self, WriteError> {
        let mut writer = Self::new(sink, options)?;
        writer.root = writer.directory(Dir(0), NESTED_ROOT.as_bytes())?;
        Ok(writer)
    }

    /// Begins an EROFS file whose root directory is implicit.
    ///
    /// # Errors
    /// The spill's.
    pub fn new(sink: S, options: Options) -> Result<Self, WriteError> {
        let memory = options.memory;
        let mut parts = Parts {
            output: Output::new(sink),
            xattrs: Xattrs::default(),
            names: Names::new(memory / 8 * 5),
            dirs: Dirs::new(memory / 4),
            blobs: Blobs::new(memory / 16),
            links: Links::new((memory / 512).max(64)),
            spill: Spill::new(options.spill),
            time: options.time,
            numbers: 0,
        };
        parts.dirs.add(Record { mode: 0o755, implicit: true, ..Record::default() }, &mut parts.spill)?;
        Ok(Self {
            parts,
            content: None,
            unnamed: None,
            inodes: 0,
            chunked: false,
            devices: Devices::default(),
            uuid: options.uuid,
            root: Dir(0),
            broken: false,
        })
    }

    /// The root of the file tree.
    #[must_use]
    pub fn root(&self) -> Dir {
        self.root
    }

    /// Where the EROFS file goes to.
    pub fn sink(&mut self) -> &mut S {
        self.parts.output.sink()
    }

    /// Bytes of the EROFS file so far, data that is not yet in the sink among them.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.parts.output.layout().end()
    }

    /// Begins a regular file of `size` bytes, all of which come through [`Self::data`], in order. Answers the inode's number.
    ///
    /// # Errors
    /// An attribute cannot be held, the EROFS file is full, the sink's.
    pub fn begin_file(&mut self, size: u64, attributes: &Attributes) -> Result<Nid, WriteError> {
        self.guard(|writer| writer.begin(Kind::File, size, attributes, false))
    }

    /// Begins a regular file that may have holes ([`Self::hole`]). One that turns out to have none is no different from others,
    /// but that its last bytes take a whole block.
    ///
    /// # Errors
    /// As of [`Self::begin_file`].
    pub fn begin_sparse_file(&mut self, size: u64, attributes: &Attributes) -> Result<Nid, WriteError> {
        self.guard(|writer| writer.begin(Kind::File, size, attributes, true))
    }

    /// The next bytes of the file that was begun.
    ///
    /// # Errors
    /// There are more than was said, or no file was begun; the sink's.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.guard(|writer| {
            let content = writer.content.as_mut().ok_or(NO_FILE)?;
            content.data(bytes, &mut writer.parts.output)
        })
    }

    /// The next bytes of the file that was begun are zeros. In a sparse file they take no space, but up to the next whole block (or
    /// up to the next 64 KiB in files of more than a gigabyte, and more in files of more than a terabyte); in others they are written.
    ///
    /// # Errors
    /// As of [`Self::data`].
    pub fn hole(&mut self, length: u64) -> Result<(), WriteError> {
        self.guard(|writer| {
            let content = writer.content.as_mut().ok_or(NO_FILE)?;
            content.hole(length, &mut writer.parts.output)
        })
    }

    /// Ends the file that was begun. It has no name yet.
    ///
    /// # Errors
    /// Not all of its bytes came; the sink's.
    pub fn end_file(&mut self) -> Result<Inode, WriteError> {
        self.guard(|writer| {
            let content = writer.content.take().ok_or(NO_FILE)?;
            let (inode, chunked) = content.end(&mut writer.parts)?;
            writer.chunked |= chunked;
            Ok(inode)
        })
    }

    /// A symbolic link, which has no name yet.
    ///
    /// # Errors
    /// The target is empty or has more than 4095 bytes; else as of [`Self::begin_file`].
    pub fn symlink(&mut self, target: &[u8], attributes: &Attributes) -> Result<Inode, WriteError> {
        self.guard(|writer| {
            if target.is_empty() || target.len() > TARGET_MAX {
                return Err(WriteError::Beyond { what: format!("a link's target of {} bytes", target.len()) });
            }
            writer.begin(Kind::Symlink, target.len() as u64, attributes, false)?;
            let mut content = writer.content.take().ok_or(NO_FILE)?;
            content.data(target, &mut writer.parts.output)?;
            Ok(content.end(&mut writer.parts)?.0)
        })
    }

    /// A device, pipe or socket, which has no name yet.
    ///
    /// # Errors
    /// The device's number does not fit; else as of [`Self::begin_file`].
    pub fn special(&mut self, special: Special, attributes: &Attributes) -> Result<Inode, WriteError> {
        self.guard(|writer| {
            let (kind, device) = match special {
                Special::Char(major, minor) => (Kind::Char, (major, minor)),
                Special::Block(major, minor) => (Kind::Block, (major, minor)),
                Special::Fifo => (Kind::Fifo, (0, 0)),
                Special::Socket => (Kind::Socket, (0, 0)),
            };
            let mut raw = writer.prepare(kind, 0, attributes)?;
            raw.union = inode::device(device.0, device.1)
                .ok_or_else(|| WriteError::Beyond { what: format!("device {}:{}", device.0, device.1) })?;
            let parts = &mut writer.parts;
            let at = parts.output.place((RawInode::len(raw.extended) + parts.xattrs.area().len()) as u64)?;
            parts.write_inode(at, &raw)?;
            writer.made(Inode { nid: Nid(at / SLOT), kind, extended: raw.extended })
        })
    }

    /// A directory with this name, which replaces what had it. It is an implicit one until
    /// [`Self::set_directory`] says otherwise.
    ///
    /// # Errors
    /// The name is no name; the spill's.
    pub fn directory(&mut self, parent: Dir, name: &[u8]) -> Result<Dir, WriteError> {
        self.guard(|writer| {
            check_name(name)?;
            let record = Record { parent: parent.0, mode: 0o755, implicit: true, ..Record::default() };
            let dir = writer.parts.dirs.add(record, &mut writer.parts.spill)?;
            writer.replace(parent, name, Some(Entry::Dir(dir)))?;
            Ok(dir)
        })
    }

    /// Says what a directory has. An implicit one gets room for other attributes, which [`crate::patch`] gives it.
    ///
    /// # Errors
    /// An attribute cannot be held; the spill's.
    pub fn set_directory(&mut self, dir: Dir, attributes: &Attributes, implicit: bool) -> Result<(), WriteError> {
        self.guard(|writer| {
            let mode = check_attributes(attributes)?;
            let parts = &mut writer.parts;
            let xattrs = parts.blobs.put(&blobs::pack(&attributes.xattrs), &mut parts.spill)?;
            let record = parts.dirs.change(dir, &mut parts.spill)?;
            let Attributes { uid, gid, mtime, .. } = *attributes;
            *record = Record { mode, implicit, uid, gid, mtime, xattrs, ..*record };
            Ok(())
        })
    }

    /// The attributes given for a directory, and whether it is an implicit one.
    ///
    /// # Errors
    /// The spill's.
    pub fn attributes(&mut self, dir: Dir) -> Result<(Attributes, bool), WriteError> {
        self.guard(|writer| {
            let parts = &mut writer.parts;
            let Record { mode, uid, gid, mtime, implicit, xattrs, .. } = parts.dirs.get(dir, &mut parts.spill)?;
            let xattrs = blobs::unpack(&parts.blobs.get(xattrs, &parts.spill)?);
            Ok((Attributes { mode: u32::from(mode), uid, gid, mtime, xattrs }, implicit))
        })
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// The spill's.
    pub fn lookup(&mut self, parent: Dir, name: &[u8]) -> Result<Option<Entry>, WriteError> {
        self.guard(|writer| writer.parts.names.get(parent, name, &writer.parts.spill))
    }

    /// Gives an inode a name (one more, if it has one), and answers what had it and has it no longer: of a directory all that is below
    /// it is gone with it, and it must not be used again.
    ///
    /// # Errors
    /// The name is no name; the spill's.
    pub fn link(&mut self, parent: Dir, name: &[u8], inode: Inode) -> Result<Option<Entry>, WriteError> {
        self.guard(|writer| {
            check_name(name)?;
            if writer.unnamed == Some(inode) {
                writer.unnamed = None;
            } else {
                writer.parts.links.change(inode, 1, &mut writer.parts.spill)?;
            }
            writer.replace(parent, name, Some(Entry::Inode(inode)))
        })
    }

    /// Takes a name away, and answers what had it, as [`Self::link`] does.
    ///
    /// # Errors
    /// The spill's.
    pub fn unlink(&mut self, parent: Dir, name: &[u8]) -> Result<Option<Entry>, WriteError> {
        self.guard(|writer| writer.replace(parent, name, None))
    }

    /// Writes directories, numbers of names and the superblock, and gives the sink back.
    ///
    /// # Errors
    /// The sink's, the spill's; a file was not ended; one has too many names.
    pub fn finish(mut self) -> Result<(S, WrittenImage), WriteError> {
        self.guard(|writer| {
            if writer.content.is_some() {
                return Err(WriteError::Misused("a file was begun and not ended"));
            }
            writer.discard_unnamed()
        })?;
        let table = self.devices.finish(&mut self.parts.output)?;
        let is_nested = self.root != Dir(0);
        self.parts.finish(&FileSummary {
            uuid: self.uuid,
            is_nested,
            chunked: self.chunked,
            table,
            inodes: self.inodes,
        })
    }

    /// After an error nothing more is done.
    fn guard<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, WriteError>) -> Result<T, WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        let result = act(self);
        self.broken = result.is_err();
        result
    }

    fn begin(&mut self, kind: Kind, size: u64, attributes: &Attributes, sparse: bool) -> Result<Nid, WriteError> {
        if i64::try_from(size).is_err() {
            return Err(WriteError::Beyond { what: format!("a file of {size} bytes") });
        }
        let raw = self.prepare(kind, size, attributes)?;
        let content = self.parts.begin(raw, kind, sparse)?;
        self.made(content.inode())?;
        let nid = content.inode().nid;
        self.content = Some(content);
        Ok(nid)
    }

    /// An inode as it is known before it has a place; the area of its extended attributes is planned.
    fn prepare(&mut self, kind: Kind, size: u64, attributes: &Attributes) -> Result<RawInode, WriteError> {
        if self.content.is_some() {
            return Err(WriteError::Misused("a file was begun and not ended"));
        }
        let mode = check_attributes(attributes)?;
        let parts = &mut self.parts;
        let area = parts.xattrs.plan(&attributes.xattrs, false, &mut parts.output)?;
        let Attributes { uid, gid, mtime, .. } = *attributes;
        let time = *parts.time.get_or_insert(mtime);
        let extended = mtime != time || uid.max(gid) > u32::from(u16::MAX) || size > u64::from(u32::MAX);
        Ok(RawInode {
            extended,
            layout: Layout::Plain,
            xattr_count: crate::format::xattr::count(area).expect("the plan sees to it"),
            mode: inode::kind_bits(kind) | mode,
            links: 1,
            size,
            union: NO_BLOCK,
            number: parts.number(),
            uid,
            gid,
            mtime,
        })
    }

    /// There is an inode without a name.
    fn made(&mut self, inode: Inode) -> Result<Inode, WriteError> {
        self.discard_unnamed()?;
        self.inodes += 1;
        self.unnamed = Some(inode);
        Ok(inode)
    }

    /// Drops the last created inode, which has no name.
    fn discard_unnamed(&mut self) -> Result<(), WriteError> {
        match self.unnamed.take() {
            Some(inode) => self.parts.links.change(inode, -1, &mut self.parts.spill),
            None => Ok(()),
        }
    }

    /// Takes the name from the entry that has it.
    fn replace(&mut self, parent: Dir, name: &[u8], entry: Option<Entry>) -> Result<Option<Entry>, WriteError> {
        let parts = &mut self.parts;
        parts.dirs.check(parent)?;
        let before = parts.names.put(parent, name, entry, &mut parts.spill)?;
        match before {
            Some(Entry::Inode(inode)) => parts.links.change(inode, -1, &mut parts.spill)?,
            Some(Entry::Dir(dir)) => parts.dirs.change(dir, &mut parts.spill)?.dead = true,
            None => {}
        }
        Ok(before)
    }
}

const NO_FILE: WriteError = WriteError::Misused("no file was begun");

#[cfg(test)]
mod tests;
