//! [`NameRun`]: sorted names in the spill, found through the first name of every page and a Bloom filter; [`Cursor`] reads them in order.

use super::entry::EntryCode;
use super::error::WriteError;
use super::spill::Spill;

/// Bytes of a page, but for its last record.
const PAGE: usize = 8 << 10;
/// Pages that are read at once in order.
const AHEAD: usize = 8;
/// Bits of the filter for each name.
const BITS: usize = 8;
/// Of them are set.
const HASHES: u64 = 4;
/// Bytes of a record before its name: directory, value, length.
const HEAD: usize = 13;

/// Directory, name, and what stands there.
pub(super) type Name<'a> = (u32, &'a [u8], EntryCode);

/// Names in the spill.
pub(super) struct NameRun {
    pages: Vec<RunPage>,
    /// The first name of every page, one after the other.
    firsts: Vec<u8>,
    filter: Vec<u64>,
    /// Names, those that are gone among them.
    count: usize,
    end: u64,
    /// The page that was read last.
    held: Option<usize>,
    buffer: Vec<u8>,
}

struct RunPage {
    at: u64,
    dir: u32,
    first: usize,
}

/// Writes a run, whose names come in order.
pub(super) struct RunWriter {
    run: NameRun,
    bytes: Vec<u8>,
    /// Where the page begins in it that is being filled.
    page: usize,
    /// The pages in it.
    pages: Vec<RunPage>,
}

impl RunWriter {
    /// Holds `most` names at most.
    pub(super) fn new(most: usize) -> Self {
        let run = NameRun {
            pages: Vec::new(),
            firsts: Vec::new(),
            filter: vec![0; (most * BITS).div_ceil(64).max(1)],
            count: 0,
            end: 0,
            held: None,
            buffer: Vec::new(),
        };
        Self { run, bytes: Vec::with_capacity(PAGE * AHEAD + 1024), page: 0, pages: Vec::new() }
    }

    /// The next name, with its hash.
    pub(super) fn add(&mut self, (dir, name, value): Name<'_>, hash: u64, spill: &mut Spill) -> Result<(), WriteError> {
        let run = &mut self.run;
        for n in 0..HASHES {
            let (word, bit) = run.bit(hash, n);
            run.filter[word] |= bit;
        }
        if self.bytes.len() >= self.page + PAGE || self.bytes.is_empty() {
            if self.bytes.len() >= PAGE * AHEAD {
                run.gather(&mut self.bytes, &mut self.pages, spill)?;
            }
            self.page = self.bytes.len();
            self.pages.push(RunPage { at: self.page as u64, dir, first: run.firsts.len() });
            run.firsts.extend_from_slice(name);
        }
        run.count += 1;
        self.bytes.extend_from_slice(&dir.to_le_bytes());
        self.bytes.extend_from_slice(&value.0.to_le_bytes());
        self.bytes.push(u8::try_from(name.len()).expect("names have at most 255 bytes"));
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    pub(super) fn finish(mut self, spill: &mut Spill) -> Result<NameRun, WriteError> {
        self.run.gather(&mut self.bytes, &mut self.pages, spill)?;
        Ok(self.run)
    }
}

impl NameRun {
    fn gather(&mut self, bytes: &mut Vec<u8>, pages: &mut Vec<RunPage>, spill: &mut Spill) -> Result<(), WriteError> {
        let at = spill.append(bytes)?;
        self.end = at + bytes.len() as u64;
        self.pages.extend(pages.drain(..).map(|page| RunPage { at: page.at + at, ..page }));
        bytes.clear();
        Ok(())
    }

    /// Names, those that are gone among them.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * size_of::<RunPage>() + self.firsts.len() + self.filter.len() * 8 + PAGE
    }

    fn bit(&self, hash: u64, n: u64) -> (usize, u64) {
        // Two halves make as many hashes as are wanted.
        let hash = ((hash >> 32) + n * (hash & 0xffff_ffff | 1)) & 0xffff_ffff;
        let bit = (hash * (self.filter.len() as u64 * 64)) >> 32;
        (usize::try_from(bit / 64).expect("a filter in memory"), 1 << (bit % 64))
    }

    fn first(&self, n: usize) -> (u32, &[u8]) {
        let end = self.pages.get(n + 1).map_or(self.firsts.len(), |page| page.first);
        (self.pages[n].dir, &self.firsts[self.pages[n].first..end])
    }

    /// The value of a name.
    pub(super) fn get(
        &mut self,
        dir: u32,
        name: &[u8],
        hash: u64,
        spill: &Spill,
    ) -> Result<Option<EntryCode>, WriteError> {
        if (0..HASHES).any(|n| matches!(self.bit(hash, n), (word, bit) if self.filter[word] & bit == 0)) {
            return Ok(None);
        }
        let (mut from, mut to) = (0, self.pages.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            if self.first(middle) <= (dir, name) { from = middle + 1 } else { to = middle }
        }
        let Some(n) = from.checked_sub(1) else { return Ok(None) };
        if self.held != Some(n) {
            self.held = None;
            let end = self.pages.get(n + 1).map_or(self.end, |page| page.at);
            self.buffer.resize(usize::try_from(end - self.pages[n].at).expect("a page"), 0);
            spill.read(self.pages[n].at, &mut self.buffer)?;
            self.held = Some(n);
        }
        let mut rest = self.buffer.as_slice();
        while let Some(((of, found, value), length)) = record(rest) {
            if (of, found) == (dir, name) {
                return Ok(Some(value));
            }
            rest = &rest[length..];
        }
        Ok(None)
    }

    /// Reads all in order.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor { at: self.pages.first().map_or(self.end, |page| page.at), end: self.end, buffer: Vec::new(), next: 0 }
    }
}

/// Reads a run in order.
pub(super) struct Cursor {
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    next: usize,
}

impl Cursor {
    /// Sees to it that the next name is in memory, if there is one.
    pub(super) fn fill(&mut self, spill: &Spill) -> Result<(), WriteError> {
        if record(&self.buffer[self.next..]).is_none() && self.at < self.end {
            let rest = self.buffer.split_off(self.next);
            let length = usize::try_from(self.end - self.at).map_or(PAGE, |left| left.min(PAGE));
            self.buffer.clear();
            self.buffer.extend_from_slice(&rest);
            self.buffer.resize(rest.len() + length, 0);
            spill.read(self.at, &mut self.buffer[rest.len()..])?;
            self.at += length as u64;
            self.next = 0;
        }
        Ok(())
    }

    /// The next name, `None` at the end. After [`Self::fill`].
    pub(super) fn peek(&self) -> Option<Name<'_>> {
        record(&self.buffer[self.next..]).map(|(name, _)| name)
    }

    /// Goes past it.
    pub(super) fn pass(&mut self) {
        if let Some((_, length)) = record(&self.buffer[self.next..]) {
            self.next += length;
        }
    }
}

/// The record that `bytes` begin with, and its length; `None` if they do not have all of it.
fn record(bytes: &[u8]) -> Option<(Name<'_>, usize)> {
    let head = bytes.get(..HEAD)?;
    let end = HEAD + usize::from(head[12]);
    let name = bytes.get(HEAD..end)?;
    let dir = u32::from_le_bytes(head[..4].try_into().ok()?);
    Some(((dir, name, EntryCode(u64::from_le_bytes(head[4..12].try_into().ok()?))), end))
}
