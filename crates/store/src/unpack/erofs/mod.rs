//! [`ErofsForm`]: a layer that is one EROFS file, `layer.erofs` in its private directory. Entries are written to the EROFS file
//! as they arrive: the data of files at once, names and directories at the end.
//!
//! Rules that the kernel enforces where a layer is made of files, such as which extended attributes a kind of file can have, are
//! applied in the same way by this module. Owners, devices and attributes are kept, whichever user unpacks.
//! [`super::unpack_erofs`] calls it, with the rules of the modules above.

mod acl;
mod log;
mod sink;
mod xattrs;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use erofs::{Attributes, Dir, Entry as Named, Inode, Nid, Special, WriteError, Writer};
use log::{Log, temporary};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sink::ImageFile;

use super::error::{UnpackError, failed, recipe as of_recipe, refused};
use super::form::{Form, There, Unpacker};
use super::options::UnpackOptions;
use super::outcome::UnpackOutcome;
use super::tree::{Id, Tree};
use super::whiteout::OPAQUE;
use crate::disk::layout::EROFS_FILE;
use crate::recipe;
use crate::tar::{Entry, Kind, Piece, Reader};

/// Bytes of names and directories that are held in memory for a layer; further ones go to a file. Several layers are unpacked at
/// the same time.
const MEMORY: usize = 2 << 20;
/// Most bytes that are taken from the reader at a time.
const PIECE: usize = 1 << 20;
/// The most names that one inode gets if it represents many whiteouts.
const NAMES_MOST: u32 = 32_000;

/// An EROFS file in the making.
pub(super) struct ErofsForm<'a> {
    writer: Writer<ImageFile<'a>>,
    /// Targets of symbolic links, and names of whiteouts.
    log: Log,
    /// Where the targets are in it.
    targets: HashMap<Nid, u64>,
    /// The inode that is the next whiteout's, and how many names it has.
    whiteout: Option<(Inode, u32)>,
    /// All inodes of whiteouts.
    whiteouts: HashSet<Nid>,
}

/// A directory of the tree.
pub(super) struct InImage {
    dir: Dir,
    /// The last whiteout that was made in it, in the log.
    last_whiteout: Option<u64>,
    /// The default access control list is one that no directory can have; said at the end, because a later entry may have
    /// another.
    bad_default_acl: Option<Errno>,
}

impl InImage {
    fn new(dir: Dir) -> Self {
        Self { dir, last_whiteout: None, bad_default_acl: None }
    }
}

/// Begins an EROFS file, whose file must not exist.
pub(super) fn unpacker<'a>(
    layer_dir: BorrowedFd<'_>,
    options: &'a UnpackOptions<'a>,
) -> Result<Unpacker<'a, ErofsForm<'a>>, UnpackError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(layer_dir, EROFS_FILE, flags, Mode::from_raw_mode(0o600))
        .map_err(|e| failed("creating", EROFS_FILE.as_bytes(), e))?;
    let opening = |e: io::Error| failed("opening", b"", e);
    let own = layer_dir.try_clone_to_owned().map_err(opening)?;
    let log = Log::new(layer_dir.try_clone_to_owned().map_err(opening)?);
    let settings = erofs::Options {
        // The EROFS files of layers need not be distinguished, and the same layer is always the same EROFS file.
        uuid: [0; 16],
        time: None,
        memory: MEMORY,
        spill: Box::new(move || temporary(own.as_fd(), "names")),
    };
    let sink = ImageFile::new(File::from(file), options.write_back);
    let begin = if options.nested { Writer::nested } else { Writer::new };
    let writer = begin(sink, settings).map_err(|e| of_writer("writing", EROFS_FILE.as_bytes(), e))?;
    let root = InImage::new(writer.root());
    let erofs = ErofsForm { writer, log, targets: HashMap::new(), whiteout: None, whiteouts: HashSet::new() };
    let recipe = recipe::Writer::create(layer_dir).map_err(of_recipe)?;
    Ok(Unpacker::new(erofs, root, recipe, options))
}

fn of_writer(operation: &'static str, path: &[u8], error: WriteError) -> UnpackError {
    match error {
        WriteError::Sink(source) | WriteError::Spill(source) => failed(operation, path, source),
        error @ WriteError::Beyond { .. } => refused(path, error.to_string()),
        error => failed(operation, path, io::Error::other(error)),
    }
}

impl Unpacker<'_, ErofsForm<'_>> {
    fn dir(&self, id: Id) -> Dir {
        self.tree.node(id).own.dir
    }

    fn failed(&self, operation: &'static str, dir: Id, leaf: &[u8], error: WriteError) -> UnpackError {
        of_writer(operation, &self.tree.path_of(dir, leaf), error)
    }

    /// Gives an inode its name, and what had it loses it.
    fn name(
        &mut self,
        operation: &'static str,
        inode: Result<Inode, WriteError>,
        dir: Id,
        leaf: &[u8],
    ) -> Result<Inode, UnpackError> {
        let handle = self.dir(dir);
        let named = inode.and_then(|inode| Ok((inode, self.form.writer.link(handle, leaf, inode)?)));
        let (inode, replaced) = named.map_err(|e| self.failed(operation, dir, leaf, e))?;
        if replaced.is_some() {
            self.last_parent = None;
        }
        if let Some(Named::Dir(_)) = replaced
            && let Some(id) = self.tree.child(dir, leaf)
        {
            self.tree.detach(id);
        }
        Ok(inode)
    }

    fn write_file(
        &mut self,
        reader: &mut Reader<'_>,
        entry: &Entry,
        attributes: &Attributes,
        dir: Id,
        leaf: &[u8],
    ) -> Result<(), UnpackError> {
        let failed = |tree: &Tree<InImage>, error| of_writer("writing", &tree.path_of(dir, leaf), error);
        let hollow = self.options.hollow;
        let writer = &mut self.form.writer;
        let begun = match &entry.pieces {
            None if !hollow => writer.begin_file(entry.size, attributes),
            _ => writer.begin_sparse_file(entry.size, attributes),
        };
        let nid = begun.map_err(|e| failed(&self.tree, e))?;
        let whole = [Piece { offset: 0, len: entry.size }];
        let pieces = entry.pieces.as_deref().unwrap_or(&whole);
        let mut at = 0;
        for piece in pieces.iter().filter(|piece| piece.len > 0) {
            if piece.offset > at {
                self.form.writer.hole(piece.offset - at).map_err(|e| failed(&self.tree, e))?;
            }
            let mut left = piece.len;
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
                let data = reader.data(most)?;
                if data.is_empty() {
                    // The reader holds sparse maps against the data, so that this is a fault of ours.
                    return Err(refused(&self.tree.path_of(dir, leaf), "its data is shorter than its map says"));
                }
                left -= data.len() as u64;
                let writer = &mut self.form.writer;
                let written = if hollow { writer.hole(data.len() as u64) } else { writer.data(data) };
                written.map_err(|e| failed(&self.tree, e))?;
                self.check_cancelled()?;
            }
            at = piece.offset + piece.len;
            self.recipe.inode_data(nid.0, piece.offset, piece.len).map_err(of_recipe)?;
        }
        if entry.size > at {
            self.form.writer.hole(entry.size - at).map_err(|e| failed(&self.tree, e))?;
        }
        Ok(())
    }
}

impl Form for ErofsForm<'_> {
    type Node = InImage;

    fn find_entry(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Option<There>, UnpackError> {
        let handle = unpacker.dir(dir);
        let found = unpacker.form.writer.lookup(handle, leaf);
        let found = found.map_err(|e| unpacker.failed("looking at", dir, leaf, e))?;
        Ok(found.map(|found| match found {
            Named::Inode(inode) if unpacker.form.whiteouts.contains(&inode.nid()) => There::Whiteout,
            Named::Inode(inode) if inode.kind() == erofs::Kind::Symlink => There::SymbolicLink,
            Named::Inode(_) | Named::Dir(_) => There::Other,
        }))
    }

    fn target(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let handle = unpacker.dir(dir);
        let operation = "reading the symbolic link";
        let found = unpacker.form.writer.lookup(handle, leaf);
        let at = match found.map_err(|e| unpacker.failed(operation, dir, leaf, e))? {
            Some(Named::Inode(inode)) => unpacker.form.targets.get(&inode.nid()).copied(),
            _ => None,
        };
        let target =
            at.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).and_then(|at| unpacker.form.log.get(at));
        Ok(target.map_err(|e| failed(operation, &unpacker.tree.path_of(dir, leaf), e))?.1)
    }

    fn directory_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        dir: Id,
        leaf: &[u8],
    ) -> Result<Option<InImage>, UnpackError> {
        let handle = unpacker.dir(dir);
        let writer = &mut unpacker.form.writer;
        let made = match writer.lookup(handle, leaf) {
            Ok(Some(_)) => return Ok(None),
            Ok(None) => writer.directory(handle, leaf),
            Err(error) => Err(error),
        };
        Ok(Some(InImage::new(made.map_err(|e| unpacker.failed("creating the directory", dir, leaf, e))?)))
    }

    fn directory(unpacker: &mut Unpacker<'_, Self>, _: &Entry, dir: Id, leaf: &[u8]) -> Result<InImage, UnpackError> {
        // The new file may replace a symbolic link that the last path led through.
        unpacker.last_parent = None;
        let handle = unpacker.dir(dir);
        let made = unpacker.form.writer.directory(handle, leaf);
        Ok(InImage::new(made.map_err(|e| unpacker.failed("creating the directory", dir, leaf, e))?))
    }

    fn dress(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, id: Id, _: bool) -> Result<(), UnpackError> {
        let path = if entry.xattrs.is_empty() { Vec::new() } else { unpacker.tree.path(id) };
        unpacker.tree.node_mut(id).own.bad_default_acl = None;
        let mut attributes = unpacker.attributes(entry, &path)?;
        if entry.xattrs.iter().any(|(name, _)| name == super::xattrs::DEFAULT_ACL) {
            unpacker.add_default_acl(entry, id, &mut attributes)?;
        }
        if unpacker.tree.node(id).opaque {
            attributes.xattrs.extend(opaque(unpacker.options.privileged));
        }
        let handle = unpacker.dir(id);
        // A nested root gets other attributes if it becomes the root of containers.
        let may_change = unpacker.options.nested && handle == unpacker.form.writer.root();
        let set = unpacker.form.writer.set_directory(handle, &attributes, may_change);
        set.map_err(|e| of_writer("setting the attributes of", &unpacker.tree.path(id), e))
    }

    fn file(
        unpacker: &mut Unpacker<'_, Self>,
        reader: &mut Reader<'_>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<(), UnpackError> {
        let attributes = unpacker.attributes_of(entry, dir, leaf)?;
        unpacker.write_file(reader, entry, &attributes, dir, leaf)?;
        let inode = unpacker.form.writer.end_file();
        unpacker.name("creating", inode, dir, leaf).map(drop)
    }

    fn symlink(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let attributes = unpacker.attributes_of(entry, dir, leaf)?;
        let operation = "creating the symbolic link";
        let inode = unpacker.form.writer.symlink(&entry.link, &attributes);
        let inode = unpacker.name(operation, inode, dir, leaf)?;
        let noted = unpacker.form.log.put(None, &entry.link);
        let noted = noted.map_err(|e| failed(operation, &unpacker.tree.path_of(dir, leaf), e))?;
        unpacker.form.targets.insert(inode.nid(), noted);
        Ok(())
    }

    fn special(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let (major, minor) = entry.device;
        let special = match entry.kind {
            Kind::Char => Special::Char(major, minor),
            Kind::Block => Special::Block(major, minor),
            _ => Special::Fifo,
        };
        let attributes = unpacker.attributes_of(entry, dir, leaf)?;
        let inode = unpacker.form.writer.special(special, &attributes);
        unpacker.name("creating the special file", inode, dir, leaf).map(drop)
    }

    fn link(unpacker: &mut Unpacker<'_, Self>, from: (Id, &[u8]), dir: Id, leaf: &[u8]) -> Result<bool, UnpackError> {
        let handle = unpacker.dir(from.0);
        let found = unpacker.form.writer.lookup(handle, from.1);
        match found.map_err(|e| unpacker.failed("looking at", from.0, from.1, e))? {
            Some(Named::Inode(inode)) => {
                unpacker.name("creating the hard link", Ok(inode), dir, leaf)?;
                Ok(true)
            }
            Some(Named::Dir(_)) | None => Ok(false),
        }
    }

    /// A whiteout's attributes are never visible: many whiteouts are one inode.
    fn whiteout_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        _: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<bool, UnpackError> {
        const OPERATION: &str = "making a whiteout of";
        if Self::find_entry(unpacker, dir, leaf)?.is_some() || unpacker.tree.child(dir, leaf).is_some() {
            return Ok(false);
        }
        let erofs = &mut unpacker.form;
        let (inode, names) = match erofs.whiteout {
            Some((inode, names)) if names < NAMES_MOST => (Ok(inode), names),
            _ => (erofs.writer.special(Special::Char(0, 0), &Attributes::default()), 0),
        };
        let inode = unpacker.name(OPERATION, inode, dir, leaf)?;
        unpacker.form.whiteout = Some((inode, names + 1));
        unpacker.form.whiteouts.insert(inode.nid());
        let last = unpacker.tree.node(dir).own.last_whiteout;
        let noted = unpacker.form.log.put(last, leaf);
        let noted = noted.map_err(|e| failed(OPERATION, &unpacker.tree.path_of(dir, leaf), e))?;
        unpacker.tree.node_mut(dir).own.last_whiteout = Some(noted);
        Ok(true)
    }

    fn make_opaque(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        let handle = unpacker.dir(id);
        let marks = opaque(unpacker.options.privileged);
        let writer = &mut unpacker.form.writer;
        let made = writer.attributes(handle).and_then(|(mut attributes, implicit)| {
            attributes.xattrs.extend(marks);
            writer.set_directory(handle, &attributes, implicit)
        });
        made.map_err(|e| of_writer("making opaque", &unpacker.tree.path(id), e))
    }

    fn whiteouts(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<Vec<Vec<u8>>, UnpackError> {
        let mut names = Vec::new();
        let mut next = unpacker.tree.node_mut(id).own.last_whiteout.take();
        while let Some(at) = next {
            let noted = unpacker.form.log.get(at).map_err(|e| failed("listing", &unpacker.tree.path(id), e))?;
            // Something else may have taken its place since, and it may have been made more than once.
            if Self::find_entry(unpacker, id, &noted.1)? == Some(There::Whiteout) {
                names.push(noted.1);
            }
            next = noted.0;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn remove_whiteout(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let handle = unpacker.dir(dir);
        let removed = unpacker.form.writer.unlink(handle, leaf);
        removed.map(drop).map_err(|e| unpacker.failed("removing the whiteout of", dir, leaf, e))
    }

    fn remove_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        let (parent, name) = (unpacker.dir(unpacker.tree.parent(id)), unpacker.tree.name(id));
        let removed = unpacker.form.writer.unlink(parent, name);
        removed.map(drop).map_err(|e| of_writer("removing the directory", &unpacker.tree.path(id), e))
    }

    fn discard_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError> {
        Self::remove_directory(unpacker, id)?;
        unpacker.tree.detach(id);
        Ok(())
    }

    fn finish(unpacker: &mut Unpacker<'_, Self>, implicit: &[Id]) -> Result<(), UnpackError> {
        let mut implicit = implicit.iter().rev().peekable();
        for id in unpacker.tree.ids().rev() {
            let is_implicit = implicit.next_if(|next| **next == id).is_some();
            let node = unpacker.tree.node(id);
            if !node.present {
                continue;
            }
            match node.own.bad_default_acl {
                Some(Errno::OPNOTSUPP) => unpacker.outcome.skipped_xattrs += 1,
                Some(error) => {
                    let path = unpacker.tree.path(id);
                    return Err(failed("setting the default access control list of", &path, error));
                }
                None => {}
            }
            let is_nested_root = unpacker.options.nested && node.own.dir == unpacker.form.writer.root();
            if !node.explicit && !is_implicit && !is_nested_root {
                // Nothing below it will ever give it attributes.
                let handle = node.own.dir;
                let writer = &mut unpacker.form.writer;
                let set = writer.attributes(handle).and_then(|(own, _)| writer.set_directory(handle, &own, false));
                set.map_err(|e| of_writer("setting the attributes of", &unpacker.tree.path(id), e))?;
            }
        }
        Ok(())
    }

    fn end(self, _: &mut UnpackOutcome) -> Result<(), UnpackError> {
        let (sink, _) = self.writer.finish().map_err(|e| of_writer("writing", EROFS_FILE.as_bytes(), e))?;
        sink.end();
        Ok(())
    }
}

/// The marks of an opaque directory: that of root, and where an ordinary user has the store, also the one that is seen without
/// root's rights.
fn opaque(privileged: bool) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let names = if privileged { &OPAQUE[..1] } else { &OPAQUE[..] };
    names.iter().map(|name| (name.as_bytes().to_vec(), b"y".to_vec()))
}
