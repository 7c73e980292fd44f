//! A tree that is built twice: by the writer, and as plain values to compare with.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use crate::{Attributes, Dir, Entry, Inode, Nid, Options, Sink, Special, WriteError, Writer, WrittenImage};

/// The type and content of an inode.
#[derive(Debug)]
pub(super) enum What {
    Dir(BTreeMap<Vec<u8>, usize>),
    /// Data at places, and how long it is.
    File(Vec<(u64, Vec<u8>)>, u64),
    Symlink(Vec<u8>),
    Special(Special),
}

/// An inode.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) what: What,
    pub(super) attributes: Attributes,
    pub(super) entry: Entry,
}

/// A tree; the first node is its root.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) nodes: Vec<Node>,
}

/// Builds a tree.
pub(super) struct Builder<S: Sink> {
    pub(super) writer: Writer<S>,
    pub(super) model: Model,
}

pub(super) fn options(memory: usize) -> Options {
    let spill = Box::new(tempfile::tempfile);
    Options { uuid: *b"0123456789abcdef", time: None, memory, spill }
}

pub(super) fn no_spill() -> Box<dyn FnMut() -> io::Result<File> + Send> {
    Box::new(|| Err(io::Error::other("nothing should be put aside")))
}

/// Attributes without extended ones.
pub(super) fn plain(mode: u32, mtime: i64) -> Attributes {
    Attributes { mode, mtime: (mtime, 0), ..Attributes::default() }
}

/// Bytes that differ from place to place and from file to file.
pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl<S: Sink> Builder<S> {
    pub(super) fn new(sink: S, options: Options) -> Self {
        let writer = Writer::new(sink, options).unwrap();
        let root = Entry::Dir(writer.root());
        let what = What::Dir(BTreeMap::new());
        Self { writer, model: Model { nodes: vec![Node { what, attributes: Attributes::implicit(), entry: root }] } }
    }

    fn dir_of(&self, dir: usize) -> Dir {
        match self.model.nodes[dir].entry {
            Entry::Dir(dir) => dir,
            Entry::Inode(_) => panic!("no directory"),
        }
    }

    fn name(&mut self, dir: usize, name: &[u8], node: usize) -> Option<usize> {
        let What::Dir(entries) = &mut self.model.nodes[dir].what else { panic!("no directory") };
        entries.insert(name.to_vec(), node)
    }

    fn add(&mut self, what: What, attributes: &Attributes, entry: Entry) -> usize {
        self.model.nodes.push(Node { what, attributes: attributes.clone(), entry });
        self.model.nodes.len() - 1
    }

    fn entry_of(&self, node: Option<usize>) -> Option<Entry> {
        node.map(|node| self.model.nodes[node].entry)
    }

    /// A directory, explicit.
    pub(super) fn directory(&mut self, parent: usize, name: &[u8], attributes: &Attributes) -> usize {
        let dir = self.implicit(parent, name);
        self.set(dir, attributes, false);
        dir
    }

    pub(super) fn set(&mut self, dir: usize, attributes: &Attributes, implicit: bool) {
        let handle = self.dir_of(dir);
        self.writer.set_directory(handle, attributes, implicit).unwrap();
        self.model.nodes[dir].attributes = attributes.clone();
        assert_eq!(self.writer.attributes(handle).unwrap(), (attributes.clone(), implicit));
    }

    pub(super) fn implicit(&mut self, parent: usize, name: &[u8]) -> usize {
        let handle = self.writer.directory(self.dir_of(parent), name).unwrap();
        let dir = self.add(What::Dir(BTreeMap::new()), &Attributes::implicit(), Entry::Dir(handle));
        self.name(parent, name, dir);
        dir
    }

    /// A file, whose data comes in pieces of `piece` bytes.
    pub(super) fn file(
        &mut self,
        dir: usize,
        name: &[u8],
        data: Vec<u8>,
        piece: usize,
        attributes: &Attributes,
    ) -> usize {
        let nid = self.writer.begin_file(data.len() as u64, attributes).unwrap();
        for piece in data.chunks(piece.max(1)) {
            self.writer.data(piece).unwrap();
        }
        let size = data.len() as u64;
        self.end_file(dir, name, nid, What::File(vec![(0, data)], size), attributes)
    }

    fn end_file(&mut self, dir: usize, name: &[u8], nid: Nid, what: What, attributes: &Attributes) -> usize {
        let inode = self.writer.end_file().unwrap();
        assert_eq!(inode.nid(), nid);
        let node = self.add(what, attributes, Entry::Inode(inode));
        self.link(dir, name, node);
        node
    }

    /// A file with holes: data at places, in order.
    pub(super) fn sparse(
        &mut self,
        dir: usize,
        name: &[u8],
        size: u64,
        pieces: Vec<(u64, Vec<u8>)>,
        attributes: &Attributes,
    ) -> usize {
        let nid = self.writer.begin_sparse_file(size, attributes).unwrap();
        let mut at = 0;
        for (from, data) in &pieces {
            self.writer.hole(from - at).unwrap();
            self.writer.data(data).unwrap();
            at = from + data.len() as u64;
        }
        self.writer.hole(size - at).unwrap();
        self.end_file(dir, name, nid, What::File(pieces, size), attributes)
    }

    pub(super) fn symlink(&mut self, dir: usize, name: &[u8], target: &[u8], attributes: &Attributes) -> usize {
        let inode = self.writer.symlink(target, attributes).unwrap();
        let node = self.add(What::Symlink(target.to_vec()), attributes, Entry::Inode(inode));
        self.link(dir, name, node);
        node
    }

    pub(super) fn special(&mut self, dir: usize, name: &[u8], special: Special, attributes: &Attributes) -> usize {
        let inode = self.writer.special(special, attributes).unwrap();
        let node = self.add(What::Special(special), attributes, Entry::Inode(inode));
        self.link(dir, name, node);
        node
    }

    /// Adds a name to an inode.
    pub(super) fn link(&mut self, dir: usize, name: &[u8], node: usize) {
        let Entry::Inode(inode) = self.model.nodes[node].entry else { panic!("a directory has one name") };
        let before = self.name(dir, name, node);
        let replaced = self.writer.link(self.dir_of(dir), name, inode).unwrap();
        assert_eq!(replaced, self.entry_of(before));
    }

    pub(super) fn unlink(&mut self, dir: usize, name: &[u8]) {
        let What::Dir(entries) = &mut self.model.nodes[dir].what else { panic!("no directory") };
        let before = entries.remove(name);
        let gone = self.writer.unlink(self.dir_of(dir), name).unwrap();
        assert_eq!(gone, self.entry_of(before));
    }

    pub(super) fn lookup(&mut self, dir: usize, name: &[u8]) {
        let What::Dir(entries) = &self.model.nodes[dir].what else { panic!("no directory") };
        let expected = self.entry_of(entries.get(name).copied());
        assert_eq!(self.writer.lookup(self.dir_of(dir), name).unwrap(), expected);
    }

    pub(super) fn finish(self) -> Result<(S, WrittenImage, Model), WriteError> {
        let (sink, written) = self.writer.finish()?;
        Ok((sink, written, self.model))
    }
}

impl Model {
    /// Every inode that has a name, with the number of its names, or of a directory, the number that it shows.
    pub(super) fn links(&self) -> BTreeMap<usize, u64> {
        let mut links = BTreeMap::from([(0, 2)]);
        let mut left = vec![0];
        while let Some(node) = left.pop() {
            let What::Dir(entries) = &self.nodes[node].what else { continue };
            for child in entries.values() {
                let is_dir = matches!(self.nodes[*child].what, What::Dir(_));
                *links.entry(*child).or_default() += if is_dir { 2 } else { 1 };
                if is_dir {
                    *links.get_mut(&node).unwrap() += 1;
                    left.push(*child);
                }
            }
        }
        links
    }

    /// The number of an inode that is no directory.
    pub(super) fn nid(&self, node: usize) -> Nid {
        match self.nodes[node].entry {
            Entry::Inode(inode) => Inode::nid(inode),
            Entry::Dir(_) => panic!("known at the end"),
        }
    }
}
