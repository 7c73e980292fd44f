//! Inodes that have data: where it goes is known from its length when it begins, so that the inode is written first. Files with
//! holes are the exception: what they have is known when they end, and their room for it is kept.

use super::entry::Inode;
use super::error::WriteError;
use super::output::Output;
use super::parts::Parts;
use crate::format::inode::{Layout, RawInode};
use crate::format::{BLOCK, NO_BLOCK, SLOT, chunk};
use crate::{Kind, Nid, Sink};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Chunks that a file has at most, four bytes each, before its chunks get longer than a block: up to this length, 64 KiB.
const CHUNKS: u64 = 1 << 18;
const CHUNK_BITS: u8 = 4;
/// And before they get longer than that: what is written of a chunk is written in whole.
const CHUNKS_MAX: u64 = 1 << 24;
/// Addresses that are written at once.
const ADDRESSES: usize = 4 << 10;

/// A file that is being written.
pub(super) struct Content {
    inode: Inode,
    left: u64,
    form: ContentForm,
}

enum ContentForm {
    /// So many bytes go to whole blocks, the others to their place; then zeros fill the last block.
    Flat {
        whole: u64,
        tail_at: u64,
        padding: u64,
    },
    Sparse(Sparse),
}

/// A file that may have holes.
struct Sparse {
    raw: RawInode,
    /// Where the addresses go.
    map_at: u64,
    /// log2 of a chunk in blocks.
    bits: u8,
    /// Bytes that came, holes among them.
    position: u64,
    /// Up to here there are blocks.
    backed: u64,
    runs: Vec<DataRun>,
}

/// Chunks that follow one another, in the file and in the EROFS file.
struct DataRun {
    chunk: u64,
    block: u32,
    count: u64,
}

impl DataRun {
    /// Where a chunk is, or would be if the run went on up to it.
    fn address(&self, chunk: u64, bits: u8) -> u32 {
        u32::try_from(u64::from(self.block) + ((chunk - self.chunk) << bits)).unwrap_or(NO_BLOCK)
    }
}

impl<S: Sink> Parts<S> {
    /// Begins what has data: files and symbolic links. The extended attributes' area is planned.
    pub(super) fn begin(&mut self, raw: RawInode, kind: Kind, sparse: bool) -> Result<Content, WriteError> {
        let mut raw = raw;
        let head = (RawInode::len(raw.extended) + self.xattrs.area().len()) as u64;
        let size = raw.size;
        if sparse && size > 0 {
            let bits = chunk_bits(size)?;
            let chunks = size.div_ceil(BLOCK_BYTES << bits);
            let at = self.output.place(head + chunks * chunk::ADDRESS as u64)?;
            let inode = Inode { nid: Nid(at / SLOT), kind, extended: raw.extended };
            raw.layout = Layout::Chunks;
            raw.union = chunk::form(bits);
            self.area(at, raw.extended)?;
            let sparse = Sparse { raw, map_at: at + head, bits, position: 0, backed: 0, runs: Vec::new() };
            return Ok(Content { inode, left: size, form: ContentForm::Sparse(sparse) });
        }
        let tail = size % BLOCK_BYTES;
        let inline = tail > 0 && head + tail <= BLOCK_BYTES;
        let at = self.output.place(if inline { head + tail } else { head })?;
        let whole = if inline { size - tail } else { size };
        if inline {
            raw.layout = Layout::Inline;
        }
        if whole > 0 {
            let data = self.output.reserve(whole.div_ceil(BLOCK_BYTES))?;
            raw.union = block_at(data);
        }
        self.write_inode(at, &raw)?;
        let inode = Inode { nid: Nid(at / SLOT), kind, extended: raw.extended };
        let padding = whole.next_multiple_of(BLOCK_BYTES) - whole;
        Ok(Content { inode, left: size, form: ContentForm::Flat { whole, tail_at: at + head, padding } })
    }

    /// Writes an inode and its extended attributes' area at their place.
    pub(super) fn write_inode(&mut self, at: u64, raw: &RawInode) -> Result<(), WriteError> {
        let mut bytes = [0; crate::format::inode::EXTENDED];
        raw.encode(&mut bytes);
        self.output.put(at, &bytes[..RawInode::len(raw.extended)])?;
        self.area(at, raw.extended)
    }

    fn area(&mut self, at: u64, extended: bool) -> Result<(), WriteError> {
        if !self.xattrs.area().is_empty() {
            let at = at + RawInode::len(extended) as u64;
            self.output.put(at, self.xattrs.area())?;
            self.xattrs.area_written_at(at);
        }
        Ok(())
    }
}

impl Content {
    pub(super) fn inode(&self) -> Inode {
        self.inode
    }

    fn take(&mut self, length: u64) -> Result<(), WriteError> {
        self.left =
            self.left.checked_sub(length).ok_or(WriteError::Misused("a file has more bytes than were announced"))?;
        Ok(())
    }

    /// The next bytes.
    pub(super) fn data<S: Sink>(&mut self, bytes: &[u8], output: &mut Output<S>) -> Result<(), WriteError> {
        self.take(bytes.len() as u64)?;
        match &mut self.form {
            ContentForm::Flat { whole, tail_at, .. } => {
                let now = usize::try_from(*whole).map_or(bytes.len(), |whole| whole.min(bytes.len()));
                let (now, tail) = bytes.split_at(now);
                if !now.is_empty() {
                    output.append(now)?;
                    *whole -= now.len() as u64;
                }
                if !tail.is_empty() {
                    output.put(*tail_at, tail)?;
                    *tail_at += tail.len() as u64;
                }
                Ok(())
            }
            ContentForm::Sparse(sparse) => sparse.data(bytes, output),
        }
    }

    /// The next bytes are zeros.
    pub(super) fn hole<S: Sink>(&mut self, length: u64, output: &mut Output<S>) -> Result<(), WriteError> {
        self.take(length)?;
        match &mut self.form {
            ContentForm::Flat { whole, tail_at, .. } => {
                let now = length.min(*whole);
                output.zeros(now)?;
                *whole -= now;
                // The tail's place has zeros.
                *tail_at += length - now;
                Ok(())
            }
            ContentForm::Sparse(sparse) => sparse.hole(length, output),
        }
    }

    /// The end; whether it has chunks.
    pub(super) fn end<S: Sink>(self, parts: &mut Parts<S>) -> Result<(Inode, bool), WriteError> {
        if self.left > 0 {
            return Err(WriteError::Misused("a file has fewer bytes than were announced"));
        }
        let chunked = match self.form {
            ContentForm::Flat { padding, .. } => {
                parts.output.zeros(padding)?;
                false
            }
            ContentForm::Sparse(sparse) => sparse.end(self.inode, &mut parts.output)?,
        };
        Ok((self.inode, chunked))
    }
}

impl Sparse {
    fn data<S: Sink>(&mut self, mut bytes: &[u8], output: &mut Output<S>) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            if self.position >= self.backed {
                self.back(bytes.len() as u64, output)?;
            }
            let left = usize::try_from(self.backed - self.position).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(left));
            output.append(now)?;
            self.position += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Takes blocks for the chunks of the next bytes, and writes the zeros before these.
    fn back<S: Sink>(&mut self, length: u64, output: &mut Output<S>) -> Result<(), WriteError> {
        let bytes = BLOCK_BYTES << self.bits;
        let (first, last) = (self.position / bytes, (self.position + length - 1) / bytes);
        let begin = first * bytes;
        let end = last.saturating_add(1).saturating_mul(bytes).min(self.raw.size.next_multiple_of(BLOCK_BYTES));
        let block = block_at(output.reserve((end - begin) / BLOCK_BYTES)?);
        let count = last - first + 1;
        match self.runs.last_mut() {
            Some(run) if run.chunk + run.count == first && run.address(first, self.bits) == block => run.count += count,
            _ => self.runs.push(DataRun { chunk: first, block, count }),
        }
        self.backed = end;
        output.zeros(self.position - begin)
    }

    fn hole<S: Sink>(&mut self, length: u64, output: &mut Output<S>) -> Result<(), WriteError> {
        output.zeros(length.min(self.backed.saturating_sub(self.position)))?;
        self.position += length;
        Ok(())
    }

    fn end<S: Sink>(mut self, inode: Inode, output: &mut Output<S>) -> Result<bool, WriteError> {
        output.zeros(self.backed.saturating_sub(self.position))?;
        let chunks = self.raw.size.div_ceil(BLOCK_BYTES << self.bits);
        let whole = matches!(&self.runs[..], [run] if run.chunk == 0 && run.count == chunks);
        if whole {
            self.raw.layout = Layout::Plain;
            self.raw.union = self.runs[0].block;
        }
        let mut bytes = [0; crate::format::inode::EXTENDED];
        self.raw.encode(&mut bytes);
        output.put(inode.nid.0 * SLOT, &bytes[..RawInode::len(self.raw.extended)])?;
        if whole {
            return Ok(false);
        }
        let mut map = Vec::with_capacity(ADDRESSES * chunk::ADDRESS);
        let (mut run, mut at) = (0, self.map_at);
        for chunk in 0..chunks {
            while self.runs.get(run).is_some_and(|run| run.chunk + run.count <= chunk) {
                run += 1;
            }
            let there = self.runs.get(run).is_some_and(|run| run.chunk <= chunk);
            let address = if there { self.runs[run].address(chunk, self.bits) } else { NO_BLOCK };
            map.extend_from_slice(&address.to_le_bytes());
            if map.len() == ADDRESSES * chunk::ADDRESS {
                output.put(at, &map)?;
                at += map.len() as u64;
                map.clear();
            }
        }
        output.put(at, &map)?;
        Ok(true)
    }
}

/// How long the chunks of a file are that has holes: log2, in blocks.
fn chunk_bits(size: u64) -> Result<u8, WriteError> {
    let least = |chunks| (0..=chunk::BITS_MAX).find(|bits| size.div_ceil(BLOCK_BYTES << bits) <= chunks);
    let most = least(CHUNKS_MAX).ok_or_else(|| WriteError::Beyond { what: format!("a file of {size} bytes") })?;
    Ok(least(CHUNKS).unwrap_or(CHUNK_BITS).min(CHUNK_BITS).max(most))
}

/// The number of the block at a place.
pub(super) fn block_at(at: u64) -> u32 {
    u32::try_from(at / BLOCK_BYTES).expect("the output sees to it that places have numbers")
}

#[cfg(test)]
mod tests {
    use super::chunk_bits;

    #[test]
    fn chunks_get_longer_with_files() {
        let cases = [
            (1, Some(0)),
            (1 << 30, Some(0)),
            ((1 << 30) + 1, Some(1)),
            (1 << 33, Some(3)),
            (1 << 34, Some(4)),
            (1 << 40, Some(4)),
            ((1 << 40) + 1, Some(5)),
            (1 << 62, Some(26)),
            (u64::MAX, Some(28)),
        ];
        for (size, bits) in cases {
            assert_eq!(chunk_bits(size).ok(), bits, "{size}");
        }
    }
}
