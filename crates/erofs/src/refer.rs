//! [`refer`]: files of a finished EROFS file whose blocks another EROFS file has as well are told to take them from there. Nothing
//! moves: an inode
//! says another place, and the blocks that nobody names any more can be given back to the file system by who called. The table of
//! devices stands in front of the superblock, where every EROFS file has room for some. The store calls it before a layer is committed.

use crate::format::inode::{self, RawInode};
use crate::format::superblock::{self, Superblock};
use crate::format::{BLOCK, BLOCK_BITS, SLOT, device};
use crate::patch::{read_block, superblock_of};
use crate::{Kind, Nid, PatchError, Sink, Source, WriteError};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// The first entry of the table, which is not where the EROFS file begins.
const FIRST: u16 = 1;

/// So many devices a finished EROFS file can be given.
pub const DEVICES_MOST: usize = superblock::OFFSET / device::LENGTH - FIRST as usize;

/// A file whose blocks are on a further device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The file.
    pub nid: Nid,
    /// Which of the devices has them, counted from 0.
    pub device: usize,
    /// The first one there.
    pub block: u32,
}

/// Gives a finished EROFS file further devices, each so many blocks long, and lets files have their whole blocks there instead of in the
/// EROFS file. They must have the very same bytes there: nothing is compared. What is written is not synced, and an EROFS file for
/// which this failed half-way is of no use.
///
/// # Errors
/// Reading or writing; an EROFS file that has further devices already, or was not made by [`crate::Writer`]; a file without whole
/// blocks in a row, or with more than the device has; more than [`DEVICES_MOST`] devices.
pub fn refer<F: Source + Sink + ?Sized>(image: &mut F, devices: &[u32], files: &[Moved]) -> Result<(), PatchError> {
    let size = image.size().map_err(PatchError::Read)?;
    let mut first = read_block(image, 0)?;
    let superblock = superblock_of(&first)?;
    let table_at = usize::from(FIRST) * device::LENGTH;
    let table = &first[table_at..superblock::OFFSET];
    if superblock.incompat & superblock::INCOMPAT_DEVICES != 0 || table.iter().any(|byte| *byte != 0) {
        return Err(PatchError::Unfit("it has further devices already"));
    }
    if devices.len() > DEVICES_MOST {
        return Err(PatchError::Unfit("it has no room for so many devices"));
    }
    let mut known: Vec<device::Device> = Vec::with_capacity(devices.len());
    let mut limit = u32::MAX;
    for (number, blocks) in (1..).zip(devices) {
        // The kernel wants a tag, and finds the device by what it is told.
        let mut tag = [0; device::TAG];
        let name = format!("device.{number}");
        tag[..name.len()].copy_from_slice(name.as_bytes());
        limit = limit
            .checked_sub(*blocks)
            .filter(|unified| *unified > superblock.blocks)
            .ok_or(PatchError::Unfit("devices have more blocks than addresses reach"))?;
        known.push(device::Device { tag, blocks: *blocks, unified: limit });
    }
    let write = |error| PatchError::Write(WriteError::Sink(error));
    for moved in files {
        let at = moved.nid.0.checked_mul(SLOT).filter(|at| *at < size).ok_or(PatchError::Unfit("no such inode"))?;
        let mut bytes = [0; inode::EXTENDED];
        let length = image.read_at(at, &mut bytes).map_err(PatchError::Read)?;
        let raw = RawInode::decode(&bytes[..length]).ok_or(PatchError::Unfit("the inode is damaged"))?;
        let blocks = match raw.layout {
            inode::Layout::Plain => raw.size.div_ceil(BLOCK_BYTES),
            inode::Layout::Inline => raw.size >> BLOCK_BITS,
            inode::Layout::Chunks => 0,
        };
        if inode::kind_of(raw.mode) != Some(Kind::File) || blocks == 0 {
            return Err(PatchError::Unfit("the inode is no file with blocks in a row"));
        }
        let device = known.get(moved.device).ok_or(PatchError::Unfit("there is no such device"))?;
        if u64::from(moved.block) + blocks > u64::from(device.blocks) {
            return Err(PatchError::Unfit("the device has not so many blocks"));
        }
        RawInode { union: device.unified + moved.block, ..raw }.encode(&mut bytes);
        image.write_at(at, &bytes[..RawInode::len(raw.extended)]).map_err(write)?;
    }
    // Inodes of the first block are but directories; what was read of it is what it is.
    for (number, device) in known.iter().enumerate() {
        let at = table_at + number * device::LENGTH;
        first[at..at + device::LENGTH].copy_from_slice(&device.encode());
    }
    let superblock = Superblock {
        incompat: superblock.incompat | superblock::INCOMPAT_DEVICES,
        devices: u16::try_from(known.len()).expect("no more than there is room for"),
        table: FIRST,
        ..superblock
    };
    first[superblock::OFFSET..superblock::OFFSET + superblock::LENGTH].copy_from_slice(&superblock.encode());
    superblock::seal(&mut first);
    image.write_at(0, &first).map_err(write)
}
