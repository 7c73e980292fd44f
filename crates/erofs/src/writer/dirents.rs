//! A directory's blocks: how long they are going to be ([`DirentMeasure`]), and their bytes ([`Block`]).

use crate::format::BLOCK;
use crate::format::dirent::{LENGTH, RawDirent};

/// The length of a directory whose entries are passed in order.
#[derive(Default)]
pub(super) struct DirentMeasure {
    full: u64,
    used: usize,
}

impl DirentMeasure {
    pub(super) fn add(&mut self, name: &[u8]) {
        let length = LENGTH + name.len();
        if self.used + length > BLOCK {
            self.full += 1;
            self.used = 0;
        }
        self.used += length;
    }

    pub(super) fn size(&self) -> u64 {
        self.full * BLOCK as u64 + self.used as u64
    }
}

/// A block that is being filled.
#[derive(Default)]
pub(super) struct Block {
    entries: Vec<(u64, u8, usize)>,
    names: Vec<u8>,
}

impl Block {
    /// Returns true if this name fits as well.
    pub(super) fn fits(&self, name: &[u8]) -> bool {
        self.len() + LENGTH + name.len() <= BLOCK
    }

    fn len(&self) -> usize {
        self.entries.len() * LENGTH + self.names.len()
    }

    pub(super) fn add(&mut self, nid: u64, kind: u8, name: &[u8]) {
        self.entries.push((nid, kind, self.names.len()));
        self.names.extend_from_slice(name);
    }

    /// Puts its bytes into `to`, which is empty, and begins another.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) {
        let first = self.entries.len() * LENGTH;
        for (nid, kind, name) in self.entries.drain(..) {
            let name_at = u16::try_from(first + name).expect("in a block");
            to.extend_from_slice(&RawDirent { nid, name_at, kind }.encode());
        }
        to.append(&mut self.names);
    }
}
