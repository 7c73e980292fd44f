//! [`Output`]: the EROFS file's end in memory, whole pieces of it to the sink. What is written behind the end lands in the
//! window where it can, in a copy of an open block that has left the window, or in the sink. The first block is held till the last.

use std::ops::Range;

use super::error::WriteError;
use super::layout::Layout;
use crate::Sink;
use crate::format::BLOCK;

/// Bytes that are gathered before the sink gets them.
const WINDOW: usize = 512 << 10;
/// Pieces of data from this length go to the sink as they are.
const DIRECT: usize = 64 << 10;
const BLOCK_BYTES: u64 = BLOCK as u64;
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The EROFS file as it grows.
pub(super) struct Output<S> {
    sink: S,
    layout: Layout,
    /// Addresses of its own blocks end before this one.
    limit: u32,
    /// The first block: superblock and root.
    head: Box<[u8; BLOCK]>,
    /// The bytes from `base` on, a multiple of a block.
    window: Vec<u8>,
    base: u64,
    /// Open blocks that the sink already has.
    detached: Vec<Detached>,
    spare: Vec<Box<[u8; BLOCK]>>,
}

struct Detached {
    at: u64,
    bytes: Box<[u8; BLOCK]>,
    /// Bytes that the sink does not have yet.
    news: Range<usize>,
}

impl<S: Sink> Output<S> {
    /// An EROFS file with nothing in it but the first block.
    pub(super) fn new(sink: S) -> Self {
        let mut layout = Layout::default();
        layout.append(1);
        let mut window = Vec::with_capacity(WINDOW + DIRECT + BLOCK);
        window.resize(BLOCK, 0);
        Self {
            sink,
            layout,
            limit: u32::MAX,
            head: Box::new([0; BLOCK]),
            window,
            base: 0,
            detached: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A place for so many bytes: see [`Layout::place`].
    pub(super) fn place(&mut self, length: u64) -> Result<u64, WriteError> {
        let at = self.layout.place(length);
        self.check_end()?;
        let closed = |block: &Detached, layout: &Layout| !layout.is_open(block.at);
        while let Some(n) = self.detached.iter().position(|block| closed(block, &self.layout)) {
            self.close(n)?;
        }
        self.zeros(self.layout.end() - self.end())?;
        Ok(at)
    }

    /// A place for so many blocks at the end, which the next bytes of [`Self::append`] and [`Self::zeros`] must fill.
    pub(super) fn reserve(&mut self, blocks: u64) -> Result<u64, WriteError> {
        let at = self.layout.append(blocks);
        self.check_end()?;
        Ok(at)
    }

    /// Block addresses have 32 bits.
    fn check_end(&self) -> Result<(), WriteError> {
        if self.layout.end() / BLOCK_BYTES >= u64::from(self.limit) {
            return Err(WriteError::Beyond { what: "more than 16 TiB".to_owned() });
        }
        Ok(())
    }

    /// Where addresses of its own blocks end.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Ends them earlier.
    pub(super) fn set_limit(&mut self, limit: u32) -> Result<(), WriteError> {
        self.limit = limit;
        self.check_end()
    }

    /// Where the next byte goes.
    fn end(&self) -> u64 {
        self.base + self.window.len() as u64
    }

    /// Appends bytes to the blocks that were reserved.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.len() < DIRECT {
            self.window.extend_from_slice(bytes);
            return if self.window.len() < WINDOW { Ok(()) } else { self.flush() };
        }
        let (head, rest) = bytes.split_at(self.window.len().next_multiple_of(BLOCK) - self.window.len());
        self.window.extend_from_slice(head);
        self.flush()?;
        let (whole, rest) = rest.split_at(rest.len() / BLOCK * BLOCK);
        self.sink.append(whole).map_err(WriteError::Sink)?;
        self.base += whole.len() as u64;
        self.window.extend_from_slice(rest);
        Ok(())
    }

    /// As [`Self::append`], of zeros.
    pub(super) fn zeros(&mut self, mut length: u64) -> Result<(), WriteError> {
        while length > 0 {
            let piece = usize::try_from(length).map_or(ZEROS.len(), |length| length.min(ZEROS.len()));
            self.append(&ZEROS[..piece])?;
            length -= piece as u64;
        }
        Ok(())
    }

    /// Writes where there is a place already.
    pub(super) fn put(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            if at >= self.base {
                copy(&mut self.window, at - self.base, bytes);
                return Ok(());
            }
            let block = at - at % BLOCK_BYTES;
            let (now, later) = bytes.split_at(bytes.len().min(distance(at, block + BLOCK_BYTES)));
            if block == 0 {
                copy(&mut self.head[..], at, now);
            } else if let Some(open) = self.detached.iter_mut().find(|open| open.at == block) {
                let from = distance(block, at);
                open.bytes[from..from + now.len()].copy_from_slice(now);
                let end = from + now.len();
                let before = if open.news.is_empty() { from..end } else { open.news.clone() };
                open.news = before.start.min(from)..before.end.max(end);
            } else {
                self.sink.write_at(at, now).map_err(WriteError::Sink)?;
            }
            at += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Gives the sink the whole blocks of the window.
    fn flush(&mut self) -> Result<(), WriteError> {
        let length = self.window.len() / BLOCK * BLOCK;
        if length == 0 {
            return Ok(());
        }
        let end = self.base + length as u64;
        for at in self.layout.open().filter(|at| (self.base..end).contains(at)) {
            let mut bytes = self.spare.pop().unwrap_or_else(|| Box::new([0; BLOCK]));
            let from = distance(self.base, at);
            bytes.copy_from_slice(&self.window[from..from + BLOCK]);
            self.detached.push(Detached { at, bytes, news: 0..0 });
        }
        if self.base == 0 {
            self.head.copy_from_slice(&self.window[..BLOCK]);
        }
        self.sink.append(&self.window[..length]).map_err(WriteError::Sink)?;
        self.base = end;
        self.window.copy_within(length.., 0);
        self.window.truncate(self.window.len() - length);
        Ok(())
    }

    /// Nothing more goes into an open block that has left the window.
    fn close(&mut self, n: usize) -> Result<(), WriteError> {
        let Detached { at, bytes, news } = self.detached.swap_remove(n);
        if !news.is_empty() {
            self.sink.write_at(at + news.start as u64, &bytes[news]).map_err(WriteError::Sink)?;
        }
        self.spare.push(bytes);
        Ok(())
    }

    /// Gives the sink everything; `seal` makes the first block what it is to be, which is written last.
    pub(super) fn finish(mut self, seal: impl FnOnce(&mut [u8; BLOCK])) -> Result<S, WriteError> {
        self.flush()?;
        while !self.detached.is_empty() {
            self.close(0)?;
        }
        seal(&mut self.head);
        self.sink.write_at(0, &self.head[..]).map_err(WriteError::Sink)?;
        Ok(self.sink)
    }
}

/// From one place to a later one in memory.
fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).expect("both are in memory")
}

fn copy(into: &mut [u8], at: u64, bytes: &[u8]) {
    let at = distance(0, at);
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
