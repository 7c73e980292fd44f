//! The compressed stream of one member, read ahead in regions: each is contiguous and has the beginning of the next one behind
//! it, so that no decoder has to care where a block lies. Regions begin small and grow, so that a short member costs
//! little; what was read and does not belong to the member is given back. Called by `parallel`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::deflate::PADDING;
use crate::input::Input;
use crate::{Error, Held, Spare};

/// Length of a region when they have grown.
pub(super) const REGION: usize = 256 * 1024;
/// What of the next region is behind a grown one.
const OVERLAP: usize = REGION / 4;
/// Memory that a grown one takes.
pub(super) const MEMORY: usize = REGION + OVERLAP + PADDING;
/// Length of the first one.
const SMALLEST: usize = 16 * 1024;

/// A part of the stream.
#[derive(Clone)]
pub(super) struct Region {
    /// Its bytes, those of the overlap, and, if it is the last one, some zeros.
    pub(super) data: Bytes,
    /// Where it begins, in bytes of the member's stream.
    pub(super) start: u64,
    /// Where the next one begins.
    pub(super) end: u64,
    /// Whether nothing comes after it; then its bytes end here.
    pub(super) last: Option<u64>,
    /// Of one that was read before it was needed.
    _memory: Option<Arc<Held>>,
}

/// What has been read.
pub(super) struct Ahead<'a, 'b> {
    input: &'a mut Input<'b>,
    regions: VecDeque<Region>,
    /// Number of the first region.
    first: usize,
    length: usize,
    /// What has been read behind the last region: the beginning of the next.
    overlap: Bytes,
    next: u64,
    /// What there is of the next region, if it has begun to come, and the memory for it.
    coming: Vec<u8>,
    memory: Option<Held>,
    ended: bool,
}

impl<'a, 'b> Ahead<'a, 'b> {
    pub(super) fn new(input: &'a mut Input<'b>) -> Self {
        Self {
            input,
            regions: VecDeque::new(),
            first: 0,
            length: SMALLEST,
            overlap: Bytes::new(),
            next: 0,
            coming: Vec::new(),
            memory: None,
            ended: false,
        }
    }

    /// The region with this number, read now if it is not yet; `None` behind the end.
    pub(super) fn region(&mut self, number: usize) -> Result<Option<&Region>, Error> {
        while self.first + self.regions.len() <= number && !self.ended {
            self.read(true)?;
        }
        Ok(number.checked_sub(self.first).and_then(|index| self.regions.get(index)))
    }

    /// The region with this number, if it is there.
    pub(super) fn at_hand(&self, number: usize) -> Option<&Region> {
        number.checked_sub(self.first).and_then(|index| self.regions.get(index))
    }

    /// Reads a region more than there are, as far as that takes no waiting. `false` when it is not there yet, or there is none,
    /// or no memory for it.
    pub(super) fn more(&mut self, spare: &dyn Spare) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        if self.memory.is_none() {
            self.memory = spare.memory(MEMORY);
        }
        Ok(self.memory.is_some() && self.read(false)?)
    }

    /// Whether regions have grown to their full length.
    pub(super) fn grown(&self) -> bool {
        self.length == REGION
    }

    /// Forgets the regions before this one.
    pub(super) fn forget(&mut self, number: usize) {
        while self.first < number && self.regions.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Ends the reading at this byte of the stream: what was read beyond it is the input's again.
    pub(super) fn give_back(self, from: u64) {
        let mut parts = Vec::new();
        for region in &self.regions {
            let end = region.last.unwrap_or(region.end);
            if end > from {
                let skip = usize::try_from(from.saturating_sub(region.start)).unwrap_or(usize::MAX);
                let length = usize::try_from(end - region.start).unwrap_or(usize::MAX);
                parts.push(region.data.slice(skip..length));
            }
        }
        if !self.ended {
            let rest = if self.coming.is_empty() { self.overlap } else { Bytes::from(self.coming) };
            let skip = usize::try_from(from.saturating_sub(self.next)).unwrap_or(usize::MAX);
            parts.push(rest.slice(skip.min(rest.len())..));
        }
        self.input.give_back(parts.into_iter());
    }

    /// Reads what is missing of the region after those that are there; where it is not needed yet, only what there is. `false`
    /// when there is more to come.
    fn read(&mut self, needed: bool) -> Result<bool, Error> {
        let (length, overlap) = (self.length, self.length / 4);
        if self.coming.is_empty() {
            self.coming.reserve_exact(length + overlap + PADDING);
            self.coming.extend_from_slice(&self.overlap);
        }
        while self.coming.len() < length + overlap && !self.ended {
            if !needed && !self.input.ready() {
                return Ok(false);
            }
            let bytes = self.input.fill()?;
            let n = bytes.len().min(length + overlap - self.coming.len());
            self.coming.extend_from_slice(&bytes[..n]);
            self.input.consume(n);
            self.ended = n == 0;
        }
        let mut data = std::mem::take(&mut self.coming);
        let start = self.next;
        let read = data.len();
        if self.ended {
            data.resize(read + PADDING, 0);
        }
        let data = Bytes::from(data);
        let last = self.ended.then_some(start + read as u64);
        self.overlap = if self.ended { Bytes::new() } else { data.slice(length..) };
        self.next = start + length as u64;
        self.regions.push_back(Region { data, start, end: self.next, last, _memory: self.memory.take().map(Arc::new) });
        self.length = (length * 2).min(REGION);
        Ok(true)
    }
}
