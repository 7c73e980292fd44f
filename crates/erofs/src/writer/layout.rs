//! [`Layout`]: where inodes go. Inodes with what stands behind them are packed into blocks, some of which are kept open for
//! what fits best; everything else is appended. Positions only, no bytes: so what comes can be tried on a copy first.

use crate::format::{BLOCK, SLOT};

/// Blocks that are kept open. Of 70,000 files with tails of any length, 4 leave 10 % of the packed blocks free, 8 leave 7 %, 32 leave
/// 3 %; but those that are open when the window goes to the sink are written there once more.
const OPEN: usize = 8;
const BLOCK_BYTES: u64 = BLOCK as u64;

/// Blocks that are taken, and those that have room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    end: u64,
    open: Vec<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    at: u64,
    used: u64,
}

impl Open {
    fn free(self) -> u64 {
        BLOCK_BYTES - self.used
    }
}

impl Layout {
    /// The end of everything: a multiple of a block.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns true if more may be packed into the block at `at`, or may have been since the last call of [`Self::place`].
    pub(super) fn is_open(&self, at: u64) -> bool {
        self.open.iter().any(|open| open.at == at)
    }

    /// The blocks that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.open.iter().map(|open| open.at)
    }

    /// A place for so many bytes, at a multiple of an inode's unit. What fits into a block is in one block; what does not begins with
    /// one. Blocks may be appended for it. What the last call gave away must have its bytes by now.
    pub(super) fn place(&mut self, length: u64) -> u64 {
        self.open.retain(|open| open.free() >= SLOT);
        let best = self.open.iter_mut().filter(|open| open.free() >= length).min_by_key(|open| open.free());
        if let Some(open) = best {
            let at = open.at + open.used;
            open.used += length.next_multiple_of(SLOT);
            return at;
        }
        let at = self.append(length.div_ceil(BLOCK_BYTES).max(1));
        if self.open.len() == OPEN {
            let fullest = (0..OPEN).min_by_key(|n| self.open[*n].free()).expect("there are some");
            self.open.swap_remove(fullest);
        }
        let last = self.end - BLOCK_BYTES;
        self.open.push(Open { at: last, used: (at + length - last).next_multiple_of(SLOT) });
        at
    }

    /// So many whole blocks at the end.
    pub(super) fn append(&mut self, blocks: u64) -> u64 {
        let at = self.end;
        self.end += blocks * BLOCK_BYTES;
        at
    }
}
