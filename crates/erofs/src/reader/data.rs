//! Where an inode's data is, and reading it: whole blocks, a tail behind the inode, chunks with holes.

use super::{InodeInfo, ReadError, Reader};
use crate::format::chunk::{self, INDEX};
use crate::format::inode::Layout;
use crate::format::{BLOCK, BLOCK_BITS, NO_BLOCK, u16_at, u32_at};
use crate::{Kind, Nid, Source};

/// Length of a block as it is counted here.
const BLOCK_BYTES: u64 = BLOCK as u64;
/// Longest target of a symbolic link, as the kernel has it.
const TARGET_MAX: u64 = 4096;

/// A piece of a file: so many bytes from a place on are there, or are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte in the EROFS file, `None` for zeros.
    pub at: Option<u64>,
    /// How many bytes, one at least.
    pub length: u64,
}

/// A file in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// log2 of a chunk in bytes.
    pub(super) bits: u32,
    /// True if addresses have the longer form.
    indexes: bool,
    /// Where they stand.
    pub(super) map: u64,
    pub(super) count: u64,
}

impl Chunks {
    fn address_len(self) -> u64 {
        (if self.indexes { INDEX } else { chunk::ADDRESS }) as u64
    }

    /// Bytes of all addresses.
    pub(super) fn map_len(self) -> u64 {
        self.count.saturating_mul(self.address_len())
    }
}

impl<R: Source> Reader<R> {
    /// Reads a file's bytes from `offset` on: as many as the buffer takes, fewer only at the file's end. Holes are zeros.
    ///
    /// # Errors
    /// See [`ReadError`]; an inode without data reads as nothing.
    pub fn read(&self, file: &InodeInfo, offset: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let left = file.size.saturating_sub(offset);
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let mut done = 0;
        while done < most {
            let piece = self.piece(file, offset + done as u64)?;
            let length = usize::try_from(piece.length).map_or(most - done, |length| length.min(most - done));
            let into = &mut buffer[done..done + length];
            match piece.at {
                Some(at) => self.exactly(at, into)?,
                None => into.fill(0),
            }
            done += length;
        }
        Ok(done)
    }

    /// Where a file goes on being a hole from `offset` on: the first byte behind it. `offset` itself if there is none.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn hole(&self, file: &InodeInfo, offset: u64) -> Result<u64, ReadError> {
        let mut at = offset;
        if file.raw.layout != Layout::Chunks {
            return Ok(at);
        }
        // A long run of holes is returned in parts, so that a call ends.
        for _ in 0..BLOCK {
            if at >= file.size {
                break;
            }
            match self.piece(file, at)? {
                Extent { at: None, length } => at += length,
                Extent { .. } => break,
            }
        }
        Ok(at)
    }

    /// Where a file's bytes are from `offset` on, as far as they are in one row there; `None` at its end. What is not the end of a
    /// file, and begins with a block, is whole blocks.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn extent(&self, file: &InodeInfo, offset: u64) -> Result<Option<Extent>, ReadError> {
        if offset >= file.size {
            return Ok(None);
        }
        let extent = self.piece(file, offset)?;
        if let Some(at) = extent.at
            && !self.holds(at, extent.length)
        {
            return Err(ReadError::damaged(format!("inode {}: its data ends beyond the end", file.nid.0)));
        }
        Ok(Some(extent))
    }

    /// How many of a file's bytes are in whole blocks, one after the other: all but the end that stands behind its inode. 0 for a file in
    /// chunks.
    #[must_use]
    pub fn whole_blocks(&self, file: &InodeInfo) -> u64 {
        if file.raw.layout == Layout::Chunks { 0 } else { self.whole(file) }
    }

    /// How long a file's chunks are, as log2 of blocks; `None` where it has none.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn chunk_bits(&self, file: &InodeInfo) -> Result<Option<u8>, ReadError> {
        if file.raw.layout != Layout::Chunks || file.size == 0 {
            return Ok(None);
        }
        let place = self.place(file.nid).ok_or_else(|| ReadError::damaged("an inode of another image"))?;
        let bits = self.chunks(file, place)?.bits - u32::from(BLOCK_BITS);
        Ok(u8::try_from(bits).ok())
    }

    /// Where a symbolic link leads, as it stands there.
    ///
    /// # Errors
    /// See [`ReadError`]; the inode is no symbolic link.
    pub fn link_target(&self, link: &InodeInfo) -> Result<Vec<u8>, ReadError> {
        let damaged = |what: &str| ReadError::damaged(format!("inode {}: {what}", link.nid.0));
        if link.kind != Kind::Symlink {
            return Err(damaged("it is no symbolic link"));
        }
        if link.size == 0 || link.size > TARGET_MAX {
            return Err(damaged("its target is empty or too long"));
        }
        let mut target = vec![0; usize::try_from(link.size).map_err(|_| damaged("its target is too long"))?];
        self.read(link, 0, &mut target)?;
        if target.contains(&0) {
            return Err(damaged("its target has a zero byte"));
        }
        Ok(target)
    }

    /// Holds an inode's data against the end of the EROFS file.
    pub(super) fn hold_data(&self, info: &InodeInfo, place: u64) -> Result<(), ReadError> {
        let damaged = |what: &str| ReadError::damaged(format!("inode {}: {what}", info.nid.0));
        if info.size == 0 {
            return Ok(());
        }
        if i64::try_from(info.size).is_err() {
            return Err(damaged("no file is so long"));
        }
        if info.raw.layout == Layout::Chunks {
            let chunks = self.chunks(info, place)?;
            if chunks.map.checked_add(chunks.map_len()).is_none_or(|end| end > self.size) {
                return Err(damaged("the list of its chunks ends beyond the end"));
            }
            return Ok(());
        }
        let whole = self.whole(info);
        if whole > 0 && (info.raw.union == NO_BLOCK || !self.holds(offset_of(info.raw.union), whole)) {
            return Err(damaged("its data ends beyond the end"));
        }
        let tail = info.size - whole;
        if tail > 0 {
            let at = place + info.head();
            if at % BLOCK_BYTES + tail > BLOCK_BYTES {
                return Err(damaged("its tail crosses a block"));
            }
            if at + tail > self.size {
                return Err(damaged("its tail ends beyond the end"));
            }
        }
        Ok(())
    }

    /// Bytes of a flat inode's data that are not behind it.
    pub(super) fn whole(&self, info: &InodeInfo) -> u64 {
        match info.raw.layout {
            Layout::Inline => info.size.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES,
            Layout::Plain | Layout::Chunks => info.size,
        }
    }

    /// How the chunks of a file lie. Their list is not yet held against the end.
    pub(super) fn chunks(&self, info: &InodeInfo, place: u64) -> Result<Chunks, ReadError> {
        let form = info.raw.union;
        if form & !u32::from(chunk::INDEXES | u16::from(chunk::BITS_MAX)) != 0 {
            return Err(ReadError::unsupported(format!("chunks of form {form:#x} (inode {})", info.nid.0)));
        }
        let bits = (form & u32::from(chunk::BITS_MAX)) + u32::from(BLOCK_BITS);
        let indexes = form & u32::from(chunk::INDEXES) != 0;
        let length = (if indexes { INDEX } else { chunk::ADDRESS }) as u64;
        let map = (place + info.head()).next_multiple_of(length);
        let count = info.size.div_ceil(1 << bits);
        if count > self.size {
            return Err(ReadError::damaged(format!("inode {}: it has more chunks than the image bytes", info.nid.0)));
        }
        Ok(Chunks { bits, indexes, map, count })
    }

    /// The first byte of a chunk; `None` for a hole.
    pub(super) fn chunk_at(&self, nid: Nid, chunks: Chunks, number: u64) -> Result<Option<u64>, ReadError> {
        let mut address = [0; INDEX];
        let length = if chunks.indexes { address.len() } else { chunk::ADDRESS };
        self.exactly(chunks.map + number * chunks.address_len(), &mut address[..length])?;
        let block = if chunks.indexes { u32_at(&address, 4) } else { u32_at(&address, 0) };
        if block == NO_BLOCK {
            return Ok(None);
        }
        // Like the kernel, the reader ignores the number of the device where there are no further devices.
        if chunks.indexes && u16_at(&address, 0) != 0 {
            return Err(ReadError::unsupported(format!("advice on chunks (inode {})", nid.0)));
        }
        Ok(Some(offset_of(block)))
    }

    /// Returns the extent of a file at `offset`, which is before its end.
    fn piece(&self, file: &InodeInfo, offset: u64) -> Result<Extent, ReadError> {
        let place = self.place(file.nid).ok_or_else(|| ReadError::damaged("an inode of another image"))?;
        let left = file.size - offset;
        if file.raw.layout == Layout::Chunks {
            let chunks = self.chunks(file, place)?;
            let within = offset & ((1 << chunks.bits) - 1);
            let length = left.min((1 << chunks.bits) - within);
            let chunk = self.chunk_at(file.nid, chunks, offset >> chunks.bits)?;
            let at = chunk.map(|begin| begin.saturating_add(within));
            return Ok(Extent { at, length });
        }
        let whole = self.whole(file);
        if offset < whole {
            return Ok(Extent { at: Some(offset_of(file.raw.union) + offset), length: whole - offset });
        }
        Ok(Extent { at: Some(place + file.head() + (offset - whole)), length: left })
    }
}

/// Returns the first byte of a block.
pub(super) fn offset_of(block: u32) -> u64 {
    u64::from(block) << BLOCK_BITS
}
