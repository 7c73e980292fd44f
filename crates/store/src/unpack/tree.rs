//! The directories of the layer being unpacked, and what is known of each. Pure: the form in which the layer is stored knows how
//! a directory is reached.
//!
//! A layer begins empty and no other process writes into it, so that every directory in it was created by this process and is
//! known. A path through known directories needs no lookup at all; one that meets anything else is looked up in the layer.

use std::collections::BTreeMap;

/// The number of a directory; parents have lower numbers than their children.
pub(super) type Id = u32;
/// The root of the layer itself.
pub(super) const ROOT: Id = 0;

/// A directory. `N` is what the form knows of it.
#[derive(Debug)]
pub(super) struct Node<N> {
    name: Box<[u8]>,
    parent: Id,
    depth: usize,
    children: BTreeMap<Box<[u8]>, Id>,
    /// There (not moved aside).
    pub(super) present: bool,
    /// Has an entry of its own.
    pub(super) explicit: bool,
    /// Something below it is more than a whiteout.
    pub(super) populated: bool,
    /// Replaces a whiteout: nothing of it is inherited from below.
    pub(super) cut: bool,
    /// Whiteouts were made in it.
    pub(super) whiteouts: bool,
    /// Hides the content of the directory below.
    pub(super) opaque: bool,
    /// The form's own data.
    pub(super) own: N,
}

/// All of them.
pub(super) struct Tree<N> {
    nodes: Vec<Node<N>>,
}

impl<N> Tree<N> {
    pub(super) fn new(own: N) -> Self {
        Self { nodes: vec![Node::new(Box::default(), ROOT, 0, own)] }
    }

    /// How many there ever were, the root included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the numbers of all existing directories, parents first.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<N> {
        0..Id::try_from(self.nodes.len()).unwrap_or(Id::MAX)
    }

    pub(super) fn node(&self, id: Id) -> &Node<N> {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: Id) -> &mut Node<N> {
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
    pub(super) fn add(&mut self, parent: Id, name: &[u8], own: N) -> Id {
        let id = Id::try_from(self.nodes.len()).expect("the caller holds the number against the limit");
        let depth = self.node(parent).depth + 1;
        self.nodes.push(Node::new(name.into(), parent, depth, own));
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
            node.children = BTreeMap::new();
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

    /// Returns true if a directory is this one, or lies below it.
    pub(super) fn is_within(&self, id: Id, directory: Id) -> bool {
        let mut at = id;
        while at != directory && at != ROOT {
            at = self.parent(at);
        }
        at == directory
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

    /// The path below one of the directories above it.
    pub(super) fn path_from(&self, id: Id, ancestor: Id) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::with_capacity(self.node(id).depth);
        let mut at = id;
        while at != ancestor && at != ROOT {
            names.push(&self.node(at).name);
            at = self.node(at).parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Notes that a directory holds more than whiteouts, and so do those above it.
    pub(super) fn populate(&mut self, mut id: Id) {
        while !self.node(id).populated {
            self.node_mut(id).populated = true;
            id = self.node(id).parent;
        }
    }
}

impl<N> Node<N> {
    fn new(name: Box<[u8]>, parent: Id, depth: usize, own: N) -> Self {
        Self {
            name,
            parent,
            depth,
            children: BTreeMap::new(),
            present: true,
            explicit: false,
            populated: false,
            cut: false,
            whiteouts: false,
            opaque: false,
            own,
        }
    }
}
