//! [`View`]: the file tree of an image, or of one layer, read without mounting it and without any right but to read the store.
//!
//! Layers are merged as overlayfs merges them: upper names hide lower ones, directories are put on each other, whiteouts and
//! opaque directories hide what lies below, and symbolic links lead to where they would in a container, never out of the image.
//! Nothing is followed on the disk. A view changes nothing; it can copy what it shows ([`copy`]), also as a tar stream. It knows no
//! records: a [`Stack`] says which layers there are.

mod archive;
mod attributes;
pub(crate) mod compose;
pub mod copy;
mod deferred;
mod dir;
mod erofs;
mod error;
mod layer;
mod path;
pub(crate) mod stack;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

use cri_api::engine::LayerLease;
use oci::Digest;
use rustix::fs::{CWD, Mode, OFlags};

pub use attributes::{Kind, Stat};
pub(crate) use deferred::Deferred;
pub use error::ViewError;
use layer::{At, LayerContent, OpenLayer};
use path::{join, parts_of, shown_path};
pub use stack::Stack;

use crate::Lower;
use crate::disk::layout::LAYERS;
use crate::tar::shown;

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;
/// Longest path that is asked for, and longest target of a link.
const PATH_MOST: usize = 1 << 20;
/// Bytes that are read at a time.
const BUFFER: usize = 256 << 10;

/// An extended attribute: its full name, and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// An image's file tree.
#[derive(Debug)]
pub struct View {
    /// The topmost first.
    layers: Vec<(Digest, OpenLayer)>,
    /// A layer by itself: what hides things below it is shown.
    single: bool,
}

/// Something in the tree.
#[derive(Clone, Debug)]
pub struct Node {
    path: Vec<u8>,
    stat: Stat,
    /// The layers that have it, the topmost first: several for a directory only.
    parts: Vec<LayerPart>,
}

#[derive(Clone, Copy, Debug)]
struct LayerPart {
    layer: usize,
    nid: u64,
}

impl Node {
    /// Where it is: names joined by slashes, none in front. Empty for the root.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The name; empty for the root.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// The kind.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns what is the same for all names of one file.
    fn identity(&self) -> Option<(usize, u64)> {
        self.parts.first().map(|part| (part.layer, self.stat.inode))
    }

    fn shown(&self) -> String {
        shown_path(&self.path)
    }
}

/// A file of the tree, open for reading.
#[derive(Debug)]
pub struct OpenFile<'a> {
    view: &'a View,
    node: &'a Node,
    content: LayerContent<'a>,
}

impl OpenFile<'_> {
    /// Reads from `offset` on; nothing at the end of the file.
    ///
    /// # Errors
    /// The layer could not be read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ViewError> {
        loop {
            match self.content.read_at(offset, buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.view.failed(self.node.parts[0].layer, &self.node.path, error)),
                Ok(length) => return Ok(length),
            }
        }
    }

    /// Writes the content of the file to `out`. An error of the inner result is an error of `out`.
    ///
    /// # Errors
    /// The layer could not be read.
    pub fn write_to(&self, out: &mut dyn io::Write) -> Result<io::Result<()>, ViewError> {
        let mut buffer = vec![0; BUFFER];
        let mut offset = 0;
        loop {
            let length = self.read_at(offset, &mut buffer)?;
            if length == 0 {
                return Ok(Ok(()));
            }
            if let Err(error) = out.write_all(&buffer[..length]) {
                return Ok(Err(error));
            }
            offset += length as u64;
        }
    }

    /// Where the hole ends that begins at `offset`; `offset` itself where there is none, or it is not known.
    fn hole(&self, offset: u64) -> Result<u64, ViewError> {
        let hole = self.content.hole(offset);
        hole.map_err(|error| self.view.failed(self.node.parts[0].layer, &self.node.path, error))
    }
}

impl View {
    /// Opens the layers of `stack` in the store under `root`. They must not be removed before.
    ///
    /// # Errors
    /// [`ViewError::Layer`].
    pub fn open(root: &Path, stack: &Stack) -> Result<Self, ViewError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut layers = Vec::with_capacity(stack.layers.len());
        for layer in &stack.layers {
            let directory = root.join(LAYERS).join(layer.number.to_string());
            let opened = rustix::fs::openat(CWD, &directory, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(io::Error::from)
                .and_then(|directory| OpenLayer::open(&directory, layer.shape, stack.owners_on_disk))
                .map_err(|source| ViewError::Layer { diff_id: layer.diff_id.clone(), source })?;
            layers.push((layer.diff_id.clone(), opened));
        }
        Ok(Self { layers, single: stack.image.is_none() })
    }

    /// Opens leased layers. The caller keeps the lease for as long as the view is used.
    ///
    /// # Errors
    /// [`ViewError::Lease`] and [`ViewError::Layer`].
    pub fn of_lease(lease: &LayerLease) -> Result<Self, ViewError> {
        let stack: Stack = serde_json::from_value(lease.stack().clone()).map_err(ViewError::Lease)?;
        Self::open(lease.root(), &stack)
    }

    /// Opens the layers of an image in a runtime's store, each with its diff ID, the topmost first. They must not be removed before.
    ///
    /// # Errors
    /// [`ViewError::Layer`].
    pub fn of_layers(layers: &[(Digest, Lower)]) -> Result<Self, ViewError> {
        let open = |(diff_id, layer): &(Digest, Lower)| match OpenLayer::at(layer) {
            Ok(opened) => Ok((diff_id.clone(), opened)),
            Err(source) => Err(ViewError::Layer { diff_id: diff_id.clone(), source }),
        };
        Ok(Self { layers: layers.iter().map(open).collect::<Result<_, _>>()?, single: false })
    }

    /// The layers, the topmost first, by diff id. Those that nothing is seen of are left out.
    pub fn layers(&self) -> impl Iterator<Item = &Digest> {
        self.layers.iter().map(|(diff_id, _)| diff_id)
    }

    /// Returns true if it is one layer by itself.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.single
    }

    /// The layer that something is from; of a directory, the one that gives it its attributes. `None`: the root of an image
    /// without layers.
    #[must_use]
    pub fn layer_of(&self, node: &Node) -> Option<&Digest> {
        node.parts.first().map(|part| &self.layers[part.layer].0)
    }

    /// Where the tree begins.
    ///
    /// # Errors
    /// A layer could not be read.
    pub fn root(&self) -> Result<Node, ViewError> {
        let mut node = Node { path: Vec::new(), stat: Stat::empty_root(), parts: Vec::new() };
        for (index, (_, layer)) in self.layers.iter().enumerate() {
            if let Some(last) = node.parts.last()
                && self.is_opaque(*last, b"")?
            {
                break;
            }
            let found = layer.root().map_err(|error| self.failed(index, b"", error))?;
            if node.parts.is_empty() {
                node.stat = found.stat;
            }
            node.parts.push(LayerPart { layer: index, nid: found.nid });
        }
        Ok(node)
    }

    /// Looks up a name in a directory.
    ///
    /// # Errors
    /// No directory, or a layer could not be read.
    pub fn child(&self, dir: &Node, name: &[u8]) -> Result<Option<Node>, ViewError> {
        must_be(dir, Kind::Directory)?;
        if name.is_empty() || name == b"." || name == b".." || name.contains(&0) || name.contains(&b'/') {
            return Ok(None);
        }
        let path = join(&dir.path, name);
        let mut node: Option<Node> = None;
        for part in &dir.parts {
            let at = At { path: &dir.path, nid: part.nid };
            let (_, layer) = &self.layers[part.layer];
            let found = layer.child(at, name).map_err(|error| self.failed(part.layer, &path, error))?;
            let Some(found) = found else { continue };
            let this = LayerPart { layer: part.layer, nid: found.nid };
            let Some(upper) = &mut node else {
                let first = Node { path: path.clone(), stat: found.stat, parts: vec![this] };
                if found.stat.kind != Kind::Directory {
                    return Ok(Some(first).filter(|node| self.shows(node)));
                }
                node = Some(first);
                continue;
            };
            if !self.merges(upper, found.stat.kind)? {
                break;
            }
            upper.parts.push(this);
        }
        Ok(node)
    }

    /// Lists a directory by name, in the order of bytes.
    ///
    /// # Errors
    /// No directory, or a layer could not be read.
    pub fn entries(&self, dir: &Node) -> Result<Vec<Node>, ViewError> {
        must_be(dir, Kind::Directory)?;
        let mut merged: BTreeMap<Vec<u8>, (Node, bool)> = BTreeMap::new();
        for part in &dir.parts {
            let at = At { path: &dir.path, nid: part.nid };
            let (diff_id, layer) = &self.layers[part.layer];
            let listed = layer.list(at).map_err(|error| self.failed(part.layer, &dir.path, error))?;
            for (name, found) in listed {
                if name.is_empty() || name == b"." || name == b".." || name.contains(&0) || name.contains(&b'/') {
                    return Err(ViewError::Name { path: dir.shown(), diff_id: diff_id.clone(), name: shown(&name) });
                }
                let this = LayerPart { layer: part.layer, nid: found.nid };
                match merged.entry(name) {
                    Entry::Vacant(place) => {
                        let path = join(&dir.path, place.key());
                        let open = found.stat.kind == Kind::Directory;
                        place.insert((Node { path, stat: found.stat, parts: vec![this] }, open));
                    }
                    Entry::Occupied(mut place) => {
                        let (upper, open) = place.get_mut();
                        *open = *open && self.merges(upper, found.stat.kind)?;
                        if *open {
                            upper.parts.push(this);
                        }
                    }
                }
            }
        }
        Ok(merged.into_values().map(|(node, _)| node).filter(|node| self.shows(node)).collect())
    }

    /// Looks up a path, which begins at the root whether it says so or not. Symbolic links on the way are followed within the
    /// image; the last one only if `follow`, or if a slash is behind it.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::Links`], [`ViewError::Kind`], or a layer could not be read.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Node, ViewError> {
        let not_found = || ViewError::NotFound { path: shown_path(path) };
        if path.len() > PATH_MOST {
            return Err(not_found());
        }
        let follow = follow || path.ends_with(b"/") || path.ends_with(b"/.");
        let mut way = vec![self.root()?];
        // The names that are still to be followed, the next one last.
        let mut ahead: Vec<Vec<u8>> = parts_of(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == b".." {
                // The root is its own parent.
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let here = way.last().expect("the root stays");
            if here.stat.kind != Kind::Directory {
                return Err(ViewError::Kind { path: here.shown(), is: here.stat.kind, wanted: Kind::Directory });
            }
            let node = self.child(here, &name)?.ok_or_else(not_found)?;
            if node.stat.kind == Kind::Symlink && (follow || !ahead.is_empty()) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(ViewError::Links { path: shown_path(path) });
                }
                let target = self.target(&node)?;
                if target.first() == Some(&b'/') {
                    way.truncate(1);
                }
                ahead.extend(parts_of(&target));
                continue;
            }
            way.push(node);
        }
        let node = way.pop().expect("the root stays");
        let directory = path.ends_with(b"/") || path.ends_with(b"/.");
        if directory {
            must_be(&node, Kind::Directory)?;
        }
        Ok(node)
    }

    /// Returns the target of a symbolic link, as recorded.
    ///
    /// # Errors
    /// Another kind of file, or the layer could not be read.
    pub fn target(&self, node: &Node) -> Result<Vec<u8>, ViewError> {
        must_be(node, Kind::Symlink)?;
        let (layer, at, part) = self.place(node);
        let target = layer.target(at).map_err(|error| self.failed(part.layer, &node.path, error))?;
        if target.is_empty() || target.len() > PATH_MOST || target.contains(&0) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the symbolic link has no valid target");
            return Err(self.failed(part.layer, &node.path, error));
        }
        Ok(target)
    }

    /// Extended attributes by their full names, but for what overlayfs keeps in them.
    ///
    /// # Errors
    /// The layer could not be read.
    pub fn xattrs(&self, node: &Node) -> Result<Vec<Xattr>, ViewError> {
        if node.parts.is_empty() || node.stat.kind == Kind::Whiteout {
            return Ok(Vec::new());
        }
        let (layer, at, part) = self.place(node);
        layer.xattrs(at).map_err(|error| self.failed(part.layer, &node.path, error))
    }

    /// Returns true if a directory of a single layer hides what the layers below have there.
    ///
    /// # Errors
    /// The layer could not be read.
    pub fn hides_below(&self, node: &Node) -> Result<bool, ViewError> {
        match node.parts.last() {
            Some(part) if node.stat.kind == Kind::Directory => self.is_opaque(*part, &node.path),
            _ => Ok(false),
        }
    }

    /// A file, for reading.
    ///
    /// # Errors
    /// Another kind of file, or the layer could not be read.
    pub fn file<'a>(&'a self, node: &'a Node) -> Result<OpenFile<'a>, ViewError> {
        must_be(node, Kind::File)?;
        let (layer, at, part) = self.place(node);
        let content = layer.content(at).map_err(|error| self.failed(part.layer, &node.path, error))?;
        Ok(OpenFile { view: self, node, content })
    }

    /// Returns true if what a lower layer has, of this kind, lies in the same directory.
    fn merges(&self, upper: &Node, below: Kind) -> Result<bool, ViewError> {
        let last = upper.parts.last().copied();
        match last {
            Some(part) if below == Kind::Directory => Ok(!self.is_opaque(part, &upper.path)?),
            _ => Ok(false),
        }
    }

    fn shows(&self, node: &Node) -> bool {
        self.single || node.stat.kind != Kind::Whiteout
    }

    fn is_opaque(&self, part: LayerPart, path: &[u8]) -> Result<bool, ViewError> {
        let at = At { path, nid: part.nid };
        self.layers[part.layer].1.is_opaque(at).map_err(|error| self.failed(part.layer, path, error))
    }

    /// Where the topmost layer that has something keeps it.
    fn place<'a>(&'a self, node: &'a Node) -> (&'a OpenLayer, At<'a>, LayerPart) {
        let part = *node.parts.first().expect("only the root of no layers is nowhere, and it is a directory");
        (&self.layers[part.layer].1, At { path: &node.path, nid: part.nid }, part)
    }

    fn failed(&self, layer: usize, path: &[u8], source: io::Error) -> ViewError {
        ViewError::Read { path: shown_path(path), diff_id: self.layers[layer].0.clone(), source }
    }
}

fn must_be(node: &Node, wanted: Kind) -> Result<(), ViewError> {
    if node.stat.kind == wanted {
        return Ok(());
    }
    Err(ViewError::Kind { path: node.shown(), is: node.stat.kind, wanted })
}
