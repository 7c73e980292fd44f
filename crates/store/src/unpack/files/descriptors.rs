//! A bounded cache of open descriptors of a layer's directories.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::tar::Time;

use super::super::tree::{Id, ROOT, Tree};
use crate::disk::beneath::Beneath;

/// Descriptors kept open at most, the root's not counted. Layers are unpacked side by side, and an ordinary limit of
/// open files is 1024.
const OPEN_MOST: usize = 64;

/// A directory on the disk.
#[derive(Debug)]
pub(in crate::unpack) struct OnDisk {
    slot: Option<usize>,
    /// The permission bits on disk, where they are known.
    pub(super) mode_on_disk: Option<u32>,
    /// The permission bits that it shall have.
    pub(super) mode: u32,
    /// The times that it shall have.
    pub(super) mtime: Time,
    pub(super) atime: Time,
    /// The default access control list, which must not act before everything in it is made.
    pub(super) default_acl: Option<Box<[u8]>>,
}

impl OnDisk {
    /// A directory that was just made with these bits.
    pub(super) fn new(mode_on_disk: u32) -> Self {
        Self {
            slot: None,
            mode_on_disk: Some(mode_on_disk),
            mode: 0o755,
            mtime: Time::default(),
            atime: Time::default(),
            default_acl: None,
        }
    }
}

struct DescriptorSlot {
    id: Id,
    used: u64,
    fd: Rc<OwnedFd>,
}

/// The open ones.
pub(super) struct Descriptors {
    root: Rc<OwnedFd>,
    slots: Vec<DescriptorSlot>,
    clock: u64,
    beneath: Beneath,
}

impl Descriptors {
    pub(super) fn new(root: OwnedFd, beneath: Beneath) -> Self {
        Self { root: Rc::new(root), slots: Vec::new(), clock: 0, beneath }
    }

    /// An open descriptor of the directory.
    pub(super) fn get(&mut self, tree: &mut Tree<OnDisk>, id: Id) -> Result<Rc<OwnedFd>, Errno> {
        if id == ROOT {
            return Ok(Rc::clone(&self.root));
        }
        self.clock += 1;
        if let Some(slot) = tree.node(id).own.slot {
            let slot = &mut self.slots[slot];
            slot.used = self.clock;
            return Ok(Rc::clone(&slot.fd));
        }
        let mut from = tree.parent(id);
        while from != ROOT && tree.node(from).own.slot.is_none() {
            from = tree.parent(from);
        }
        let path = tree.path_from(id, from);
        let base = match tree.node(from).own.slot {
            Some(slot) => &self.slots[slot].fd,
            None => &self.root,
        };
        let fd = Rc::new(self.beneath.directory(base.as_fd(), &path)?);
        if self.slots.len() >= OPEN_MOST {
            let oldest = self.slots.iter().min_by_key(|slot| slot.used).map(|slot| slot.id);
            if let Some(oldest) = oldest {
                self.close(tree, oldest);
            }
        }
        let slot = self.slots.len();
        self.slots.push(DescriptorSlot { id, used: self.clock, fd: Rc::clone(&fd) });
        tree.node_mut(id).own.slot = Some(slot);
        Ok(fd)
    }

    /// Closes a directory's, if it is open.
    pub(super) fn close(&mut self, tree: &mut Tree<OnDisk>, id: Id) {
        let Some(slot) = tree.node_mut(id).own.slot.take() else { return };
        self.slots.swap_remove(slot);
        if let Some(moved) = self.slots.get(slot) {
            tree.node_mut(moved.id).own.slot = Some(slot);
        }
    }
}
