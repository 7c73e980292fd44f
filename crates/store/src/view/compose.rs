//! [`compose`]: what a view shows, as one EROFS file whose files have their blocks where they are, in those of the layers: names,
//! attributes and what shares a block with other things are copied, whiteouts and opaque directories have done their work.
//! Files of layers that are directories are copied whole, since no EROFS file has their blocks.
//!
//! Mounts nothing, and knows no place. Called by the mounter.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use erofs::{Attributes, Device, Dir, Inode, Options, Sink, Special, WriteError, Writer};

use super::attributes::{Kind, Stat};
use super::error::ViewError;
use super::layer::OpenLayer;
use super::path::shown_path;
use super::{Node, View};

/// Bytes of names and directories that are held in memory.
const MEMORY: usize = 16 << 20;
/// Files of so many bytes may have holes that are worth keeping.
const HOLLOW: u64 = 64 << 10;
/// Most bytes of a file that are copied at a time.
const PIECE: usize = 256 << 10;

/// Why no EROFS file was composed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// A layer could not be read.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The EROFS file could not be written, or cannot hold something.
    #[error("compose an image: {path}")]
    Write {
        /// Bytes, blocks and inodes of the written file.
        path: String,
        /// The fault.
        source: WriteError,
    },
}

/// The result of a composition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Composed {
    /// The further devices of the EROFS file, in their order: layers, as they are counted in the stack, from the topmost on.
    pub(crate) devices: Vec<usize>,
    /// Bytes of the EROFS file.
    pub(crate) size: u64,
}

/// Writes the EROFS file. `spill` makes an empty file for what does not fit into memory.
pub(crate) fn compose<S: Sink>(
    view: &View,
    sink: S,
    spill: Box<dyn FnMut() -> io::Result<File> + Send>,
) -> Result<Composed, ComposeError> {
    let failed = |source| ComposeError::Write { path: "/".to_owned(), source };
    // Composed EROFS files need not be distinguished.
    let options = Options { uuid: [0; 16], time: None, memory: MEMORY, spill };
    let mut writer = Writer::new(sink, options).map_err(failed)?;
    let most = view.layers.iter().filter(|(_, layer)| matches!(layer, OpenLayer::Erofs(_))).count();
    let most = u16::try_from(most).unwrap_or(u16::MAX);
    if most > 0 {
        writer.reserve_devices(most).map_err(failed)?;
    }
    let mut composer = Composer { view, writer, devices: Vec::new(), known: HashMap::new(), linked: HashMap::new() };
    let root = view.root()?;
    let top = composer.writer.root();
    composer.dress(&root, top)?;
    let mut left = vec![(root, top)];
    while let Some((node, dir)) = left.pop() {
        for child in view.entries(&node)? {
            if child.stat.kind == Kind::Directory {
                let below = composer.writer.directory(dir, child.name());
                let below = below.map_err(|source| write_failed(&child, source))?;
                composer.dress(&child, below)?;
                left.push((child, below));
            } else {
                composer.thing(&child, dir)?;
            }
        }
    }
    let (_, written) = composer.writer.finish().map_err(failed)?;
    Ok(Composed { devices: composer.devices, size: written.size })
}

fn write_failed(node: &Node, source: WriteError) -> ComposeError {
    ComposeError::Write { path: shown_path(&node.path), source }
}

struct Composer<'a, S: Sink> {
    view: &'a View,
    writer: Writer<S>,
    /// The layers whose EROFS files are devices, in the order of the devices.
    devices: Vec<usize>,
    known: HashMap<usize, Device>,
    /// Files that have several names in their layer.
    linked: HashMap<(usize, u64), Inode>,
}

impl<S: Sink> Composer<'_, S> {
    fn attributes(&self, node: &Node) -> Result<Attributes, ComposeError> {
        let Stat { mode, uid, gid, mtime, .. } = node.stat;
        let mut xattrs = self.view.xattrs(node)?;
        // Files of a directory can have attributes of a kind that an EROFS file cannot hold and that no layer has set.
        xattrs.retain(|(name, value)| erofs::can_hold(name, value));
        Ok(Attributes { mode, uid, gid, mtime, xattrs })
    }

    fn dress(&mut self, node: &Node, dir: Dir) -> Result<(), ComposeError> {
        let attributes = self.attributes(node)?;
        self.writer.set_directory(dir, &attributes, false).map_err(|source| write_failed(node, source))
    }

    /// Anything but a directory, with its name.
    fn thing(&mut self, node: &Node, dir: Dir) -> Result<(), ComposeError> {
        let identity = node.identity().filter(|_| node.stat.links > 1);
        let known = identity.and_then(|identity| self.linked.get(&identity)).copied();
        let inode = match known {
            Some(inode) => inode,
            None => self.inode(node)?,
        };
        if let Some(identity) = identity {
            self.linked.insert(identity, inode);
        }
        self.writer.link(dir, node.name(), inode).map(drop).map_err(|source| write_failed(node, source))
    }

    fn inode(&mut self, node: &Node) -> Result<Inode, ComposeError> {
        let attributes = self.attributes(node)?;
        let (major, minor) = node.stat.device;
        let special = match node.stat.kind {
            Kind::File => return self.file(node, &attributes),
            Kind::Symlink => {
                let target = self.view.target(node)?;
                return self.writer.symlink(&target, &attributes).map_err(|source| write_failed(node, source));
            }
            Kind::Block => Special::Block(major, minor),
            Kind::Fifo => Special::Fifo,
            Kind::Socket => Special::Socket,
            // Whiteouts do not show in images, and directories are seen to before.
            Kind::Char | Kind::Whiteout | Kind::Directory => Special::Char(major, minor),
        };
        self.writer.special(special, &attributes).map_err(|source| write_failed(node, source))
    }

    fn file(&mut self, node: &Node, attributes: &Attributes) -> Result<Inode, ComposeError> {
        let failed = |source| write_failed(node, source);
        let (layer, at, part) = self.view.place(node);
        let OpenLayer::Erofs(layer) = layer else { return self.copy(node, attributes) };
        let (image, file) = layer.inode(at.nid).map_err(|error| self.view.failed(part.layer, &node.path, error))?;
        let device = match self.known.get(&part.layer) {
            Some(device) => *device,
            None => {
                let blocks = layer.blocks().map_err(|error| self.view.failed(part.layer, &node.path, error))?;
                let tag = format!("layer-{}", part.layer);
                let device = self.writer.add_device(tag.as_bytes(), blocks).map_err(failed)?;
                self.devices.push(part.layer);
                self.known.insert(part.layer, device);
                device
            }
        };
        self.writer.file_of(image, &file, attributes, device).map_err(failed)
    }

    /// A file whose bytes are in no EROFS file.
    fn copy(&mut self, node: &Node, attributes: &Attributes) -> Result<Inode, ComposeError> {
        let failed = |source| write_failed(node, source);
        let file = self.view.file(node)?;
        let size = node.stat.size;
        if size >= HOLLOW {
            self.writer.begin_sparse_file(size, attributes)
        } else {
            self.writer.begin_file(size, attributes)
        }
        .map_err(failed)?;
        let mut buffer = vec![0; PIECE];
        let mut at = 0;
        while at < size {
            let hole = file.hole(at)?.min(size);
            if hole > at {
                self.writer.hole(hole - at).map_err(failed)?;
                at = hole;
                continue;
            }
            let most = usize::try_from(size - at).map_or(PIECE, |left| left.min(PIECE));
            let length = file.read_at(at, &mut buffer[..most])?;
            if length == 0 {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than it was");
                return Err(self.view.failed(node.parts[0].layer, &node.path, error).into());
            }
            self.writer.data(&buffer[..length]).map_err(failed)?;
            at += length as u64;
        }
        self.writer.end_file().map_err(failed)
    }
}
