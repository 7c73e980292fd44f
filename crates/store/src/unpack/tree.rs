//! The directories of the layer being unpacked: what is known of each, and a bounded cache of their descriptors.
//!
//! `fs/` begins empty and nobody else writes into it, so that every directory in it is one that we made and know. A
//! path through known directories needs no system call at all; one that meets anything else is looked up on disk.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::tar::Time;

use super::beneath::Beneath;

/// Descriptors kept open at most, the root's not counted. Layers are unpacked side by side, and an ordinary limit of
/// open files is 1024.
const OPEN_MOST: usize = 64;

/// The number of a directory; parents have lower numbers than their children.
pub(super) type Id = u32;
/// The directory `fs/` itself.
pub(super) const ROOT: Id = 0;

/// One directory.
#[derive(Debug)]
pub(super) struct Node {
    name: Box<[u8]>,
    parent: Id,
    depth: usize,
    children: BTreeMap<Box<[u8]>, Id>,
    slot: Option<usize>,
    /// It is there (not moved aside).
    pub(super) present: bool,
    /// It has an entry of its own.
    pub(super) explicit: bool,
    /// Something below it is more than a whiteout.
    pub(super) populated: bool,
    /// It stands where a whiteout was: nothing of it comes from below.
    pub(super) cut: bool,
    /// Whiteouts were made in it.
    pub(super) whiteouts: bool,
    /// It hides the content of the directory below.
    pub(super) opaque: bool,
    /// The permission bits on disk, where they are known.
    pub(super) mode_on_disk: Option<u32>,
    /// The permission bits that it shall have.
    pub(super) mode: u32,
    /// The times that it shall have.
    pub(super) mtime: Time,
    pub(super) atime: Time,
    /// Its default access control list, which must not act before everything in it is made.
    pub(super) default_acl: Option<Box<[u8]>>,
}

struct Slot {
    id: Id,
    used: u64,
    fd: Rc<OwnedFd>,
}

/// All of them.
pub(super) struct Tree {
    nodes: Vec<Node>,
    root: Rc<OwnedFd>,
    slots: Vec<Slot>,
    clock: u64,
    beneath: Beneath,
}

impl Tree {
    pub(super) fn new(root: OwnedFd, mode_on_disk: u32, beneath: Beneath) -> Self {
        let node = Node::new(Box::default(), ROOT, 0, Some(mode_on_disk));
        Self { nodes: vec![node], root: Rc::new(root), slots: Vec::new(), clock: 0, beneath }
    }

    /// How many there ever were, the root included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The numbers of all that are there, parents first.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<> {
        0..Id::try_from(self.nodes.len()).unwrap_or(Id::MAX)
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub(super) fn child(&self, id: Id, name: &[u8]) -> Option<Id> {
        self.node(id).children.get(name).copied()
    }

    /// The directory at a path, if every component of it is a known directory.
    pub(super) fn find(&self, path: &[u8]) -> Option<Id> {
        if path.is_empty() {
            return Some(ROOT);
        }
        path.split(|b| *b == b'/').try_fold(ROOT, |at, part| self.child(at, part))
    }

    /// Takes a new directory in. The caller sees to it that there are not more than [`Id`] can count.
    pub(super) fn add(&mut self, parent: Id, name: &[u8], mode_on_disk: Option<u32>) -> Id {
        let id = Id::try_from(self.nodes.len()).expect("the caller holds the number against the limit");
        let depth = self.node(parent).depth + 1;
        self.nodes.push(Node::new(name.into(), parent, depth, mode_on_disk));
        self.node_mut(parent).children.insert(name.into(), id);
        id
    }

    /// Forgets a directory and all below it.
    pub(super) fn detach(&mut self, id: Id) {
        let (parent, name) = (self.node(id).parent, std::mem::take(&mut self.node_mut(id).name));
        self.node_mut(parent).children.remove(&name);
        for id in self.subtree(id) {
            let node = self.node_mut(id);
            node.present = false;
            node.default_acl = None;
            node.children = BTreeMap::new();
            if let Some(slot) = node.slot.take() {
                self.drop_slot(slot);
            }
        }
    }

    fn drop_slot(&mut self, slot: usize) {
        self.slots.swap_remove(slot);
        if let Some(moved) = self.slots.get(slot) {
            let id = moved.id;
            self.node_mut(id).slot = Some(slot);
        }
    }

    /// A directory and all below it, parents first.
    pub(super) fn subtree(&self, id: Id) -> Vec<Id> {
        let mut all = vec![id];
        let mut next = 0;
        while let Some(id) = all.get(next) {
            all.extend(self.node(*id).children.values());
            next += 1;
        }
        all
    }

    /// Components between the root and this directory.
    pub(super) fn depth(&self, id: Id) -> usize {
        self.node(id).depth
    }

    pub(super) fn parent(&self, id: Id) -> Id {
        self.node(id).parent
    }

    pub(super) fn name(&self, id: Id) -> &[u8] {
        &self.node(id).name
    }

    /// The path below the root; empty = the root.
    pub(super) fn path(&self, id: Id) -> Vec<u8> {
        self.path_from(id, ROOT)
    }

    /// The path of a thing in a directory.
    pub(super) fn path_of(&self, dir: Id, leaf: &[u8]) -> Vec<u8> {
        let mut path = self.path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(leaf);
        path
    }

    fn path_from(&self, id: Id, ancestor: Id) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::with_capacity(self.node(id).depth);
        let mut at = id;
        while at != ancestor && at != ROOT {
            names.push(&self.node(at).name);
            at = self.node(at).parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// An open descriptor of the directory.
    pub(super) fn fd(&mut self, id: Id) -> Result<Rc<OwnedFd>, Errno> {
        if id == ROOT {
            return Ok(Rc::clone(&self.root));
        }
        self.clock += 1;
        if let Some(slot) = self.node(id).slot {
            let slot = &mut self.slots[slot];
            slot.used = self.clock;
            return Ok(Rc::clone(&slot.fd));
        }
        let mut from = self.node(id).parent;
        while from != ROOT && self.node(from).slot.is_none() {
            from = self.node(from).parent;
        }
        let path = self.path_from(id, from);
        let base = match self.node(from).slot {
            Some(slot) => &self.slots[slot].fd,
            None => &self.root,
        };
        let fd = Rc::new(self.beneath.directory(base.as_fd(), &path)?);
        if self.slots.len() >= OPEN_MOST {
            let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.used).map(|(at, _)| at);
            if let Some(oldest) = oldest {
                let id = self.slots[oldest].id;
                self.node_mut(id).slot = None;
                self.drop_slot(oldest);
            }
        }
        let slot = self.slots.len();
        self.slots.push(Slot { id, used: self.clock, fd: Rc::clone(&fd) });
        self.node_mut(id).slot = Some(slot);
        Ok(fd)
    }

    /// Notes that a directory holds more than whiteouts, and so do those above it.
    pub(super) fn populate(&mut self, mut id: Id) {
        while !self.node(id).populated {
            self.node_mut(id).populated = true;
            id = self.node(id).parent;
        }
    }
}

impl Node {
    fn new(name: Box<[u8]>, parent: Id, depth: usize, mode_on_disk: Option<u32>) -> Self {
        Self {
            name,
            parent,
            depth,
            children: BTreeMap::new(),
            slot: None,
            present: true,
            explicit: false,
            populated: false,
            cut: false,
            whiteouts: false,
            opaque: false,
            mode_on_disk,
            mode: 0o755,
            mtime: Time::default(),
            atime: Time::default(),
            default_acl: None,
        }
    }
}
