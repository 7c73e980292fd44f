//! Files whose content is on further devices: the EROFS file says where, and has at most their ends itself. Devices are other EROFS files,
//! or anything else whose blocks stay as they are.

use super::Writer;
use super::content::block_at;
use super::devices::{Device, DeviceBlock};
use super::entry::Inode;
use super::error::WriteError;
use crate::format::inode::{Layout, RawInode};
use crate::format::{BLOCK, NO_BLOCK, SLOT, chunk, device};
use crate::{Attributes, Extent, InodeInfo, Kind, Nid, Reader, Sink, Source};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Chunks that a file has at most.
const CHUNKS_MAX: u64 = 1 << 24;
/// Bytes of addresses that are written at once.
const INDEXES: usize = 4096 * chunk::INDEX;

impl<S: Sink> Writer<S> {
    /// Keeps room for so many further devices. To be called before anything else.
    ///
    /// # Errors
    /// Something was written already; the sink's.
    pub fn reserve_devices(&mut self, most: u16) -> Result<(), WriteError> {
        self.guard(|writer| {
            let output = &mut writer.parts.output;
            if writer.devices.table.is_some() || output.layout().end() != BLOCK_BYTES {
                return Err(WriteError::Misused("room for devices comes first"));
            }
            let blocks = (u64::from(most) * device::LENGTH as u64).div_ceil(BLOCK_BYTES);
            writer.devices.table = Some((output.reserve(blocks)?, most));
            output.zeros(blocks * BLOCK_BYTES)
        })
    }

    /// Adds a device of so many blocks. `tag` says which it is, in at most 64 bytes; it must have some.
    ///
    /// # Errors
    /// There is no room in the table; all devices together have more blocks than addresses reach.
    pub fn add_device(&mut self, tag: &[u8], blocks: u32) -> Result<Device, WriteError> {
        self.guard(|writer| {
            let beyond = |what: &str| WriteError::Beyond { what: what.to_owned() };
            let room = writer.devices.table.map_or(0, |(_, most)| most);
            let number = u16::try_from(writer.devices.known.len() + 1).ok().filter(|number| *number <= room);
            let number = number.ok_or_else(|| beyond("so many devices"))?;
            let mut own = [0; device::TAG];
            own.get_mut(..tag.len())
                .filter(|_| !tag.is_empty())
                .ok_or_else(|| beyond("a tag of a device"))?
                .copy_from_slice(tag);
            // From the end of all addresses down, so that the EROFS file's own blocks have those before.
            let unified = writer.parts.output.limit().checked_sub(blocks).filter(|first| *first > 0);
            let unified = unified.ok_or_else(|| beyond("more than 16 TiB"))?;
            writer.parts.output.set_limit(unified)?;
            writer.devices.known.push(device::Device { tag: own, blocks, unified });
            Ok(Device(number))
        })
    }

    /// A regular file whose bytes are on a device, one block after the other; it has no name yet. `tail` are those that are not there:
    /// what is beyond the last whole block, or nothing.
    ///
    /// # Errors
    /// The blocks are not on that device, or no whole ones; an attribute cannot be held; the EROFS file is full; the sink's.
    pub fn file_at(
        &mut self,
        size: u64,
        attributes: &Attributes,
        at: DeviceBlock,
        tail: &[u8],
    ) -> Result<Inode, WriteError> {
        self.guard(|writer| {
            let whole = size.checked_sub(tail.len() as u64).filter(|whole| {
                *whole > 0 && tail.len() < BLOCK && (tail.is_empty() || whole.is_multiple_of(BLOCK_BYTES))
            });
            let whole = whole.ok_or(WriteError::Misused("a file elsewhere has whole blocks and a tail"))?;
            let blocks = whole.div_ceil(BLOCK_BYTES);
            let unified = writer.devices.hold(at, blocks)?.unified;
            let mut raw = writer.prepare(Kind::File, size, attributes)?;
            let parts = &mut writer.parts;
            let head = (RawInode::len(raw.extended) + parts.xattrs.area().len()) as u64;
            let tail_bytes = tail.len() as u64;
            if !tail.is_empty() && head + tail_bytes <= BLOCK_BYTES {
                let place = parts.output.place(head + tail_bytes)?;
                raw.layout = Layout::Inline;
                // Only an address without a device can be that of a file with a tail.
                raw.union = unified + at.block;
                parts.write_inode(place, &raw)?;
                parts.output.put(place + head, tail)?;
                return writer.made(Inode { nid: Nid(place / SLOT), kind: Kind::File, extended: raw.extended });
            }
            if tail.is_empty() {
                let bits = blocks.next_power_of_two().trailing_zeros();
                return writer.chunks(raw, bits, 1, &mut |_| Ok((at.device.0, at.block)));
            }
            // It has so many attributes that the tail takes a block of its own, and so a chunk.
            let bits = blocks.trailing_zeros();
            let own = block_at(parts.output.reserve(1)?);
            parts.output.append(tail)?;
            parts.output.zeros(BLOCK_BYTES - tail_bytes)?;
            writer.chunks(raw, bits, (blocks >> bits) + 1, &mut |number| {
                let block = u32::try_from(number << bits).ok().and_then(|block| at.block.checked_add(block));
                Ok(if number << bits < blocks { (at.device.0, block.unwrap_or(NO_BLOCK)) } else { (0, own) })
            })
        })
    }

    /// A regular file of another EROFS file, whose blocks stay where they are: `device` is that EROFS file. What shares a block with
    /// other things there is copied. It has no name yet.
    ///
    /// # Errors
    /// As of [`Self::file_at`]; that EROFS file cannot be read.
    pub fn file_of<R: Source>(
        &mut self,
        image: &Reader<R>,
        file: &InodeInfo,
        attributes: &Attributes,
        device: Device,
    ) -> Result<Inode, WriteError> {
        let place = |at: u64| {
            let block = u32::try_from(at / BLOCK_BYTES).ok().filter(|_| at.is_multiple_of(BLOCK_BYTES));
            block.map(|block| DeviceBlock { device, block })
        };
        let lost = WriteError::Misused("a file's blocks are not where files' blocks are");
        if let Some(bits) = image.chunk_bits(file)? {
            let length = BLOCK_BYTES << bits;
            return self.file_in_chunks(file.size, attributes, bits, &mut |number| {
                let Some(Extent { at: Some(at), .. }) = image.extent(file, number * length)? else { return Ok(None) };
                place(at).map(Some).ok_or(WriteError::Misused("a file's blocks are not where files' blocks are"))
            });
        }
        let whole = image.whole_blocks(file);
        if whole == 0 {
            return self.copy(image, file, attributes);
        }
        let first = image.extent(file, 0)?.and_then(|extent| extent.at).and_then(place).ok_or(lost)?;
        let mut tail = [0; BLOCK];
        let length = image.read(file, whole, &mut tail)?;
        self.file_at(file.size, attributes, first, &tail[..length])
    }

    /// A short file of another EROFS file, as it is there.
    fn copy<R: Source>(
        &mut self,
        image: &Reader<R>,
        file: &InodeInfo,
        attributes: &Attributes,
    ) -> Result<Inode, WriteError> {
        let mut bytes = [0; BLOCK];
        let length = image.read(file, 0, &mut bytes)?;
        self.begin_file(file.size, attributes)?;
        self.data(&bytes[..length])?;
        self.end_file()
    }

    /// A regular file whose bytes are on devices in chunks of 2 to the power of `bits` blocks, each somewhere, or nowhere where it is
    /// a hole. Without a name so far.
    ///
    /// # Errors
    /// As of [`Self::file_at`], and what `place` says, which is asked for each chunk by its number.
    pub fn file_in_chunks(
        &mut self,
        size: u64,
        attributes: &Attributes,
        bits: u8,
        place: &mut dyn FnMut(u64) -> Result<Option<DeviceBlock>, WriteError>,
    ) -> Result<Inode, WriteError> {
        self.guard(|writer| {
            let length = BLOCK_BYTES.checked_shl(bits.into()).filter(|_| bits <= chunk::BITS_MAX);
            let length = length.filter(|_| size > 0).ok_or(WriteError::Misused("there are no such chunks"))?;
            let raw = writer.prepare(Kind::File, size, attributes)?;
            let devices = std::mem::take(&mut writer.devices);
            let made = writer.chunks(raw, bits.into(), size.div_ceil(length), &mut |number| {
                let here = (size - number * length).min(length);
                let Some(place) = place(number)? else { return Ok((0, NO_BLOCK)) };
                devices.hold(place, here.div_ceil(BLOCK_BYTES))?;
                Ok((place.device.0, place.block))
            });
            writer.devices = devices;
            made
        })
    }

    /// An inode with addresses of chunks behind it.
    fn chunks(
        &mut self,
        mut raw: RawInode,
        bits: u32,
        count: u64,
        place: &mut dyn FnMut(u64) -> Result<(u16, u32), WriteError>,
    ) -> Result<Inode, WriteError> {
        let bits = u8::try_from(bits).ok().filter(|bits| *bits <= chunk::BITS_MAX && count <= CHUNKS_MAX);
        let bits =
            bits.ok_or_else(|| WriteError::Beyond { what: format!("a file of {} bytes elsewhere", raw.size) })?;
        raw.layout = Layout::Chunks;
        raw.union = chunk::form(bits) | u32::from(chunk::INDEXES);
        let parts = &mut self.parts;
        let head = (RawInode::len(raw.extended) + parts.xattrs.area().len()) as u64;
        // Inodes stand at multiples of more than an index.
        let map = head.next_multiple_of(chunk::INDEX as u64);
        let at = parts.output.place(map + count * chunk::INDEX as u64)?;
        parts.write_inode(at, &raw)?;
        let mut bytes = Vec::new();
        let mut to = at + map;
        for number in 0..count {
            let (device, block) = place(number)?;
            bytes.extend_from_slice(&chunk::index(device, block));
            if bytes.len() == INDEXES || number + 1 == count {
                parts.output.put(to, &bytes)?;
                to += bytes.len() as u64;
                bytes.clear();
            }
        }
        self.chunked = true;
        self.made(Inode { nid: Nid(at / SLOT), kind: Kind::File, extended: raw.extended })
    }
}
