//! Further devices of an image: what its table says of them, held against what was given. Addresses of blocks are looked up here,
//! whichever way they name a device.

use super::{ReadError, Reader};
use crate::Source;
use crate::format::superblock::{self, Superblock};
use crate::format::{BLOCK_BITS, device};

/// The further devices of an image.
#[derive(Debug)]
pub(super) struct Devices<R> {
    all: Vec<KnownDevice<R>>,
    /// Where each begins in addresses that name no device, in their order.
    unified: Vec<(u32, u16)>,
    /// Where the table is in the image.
    pub(super) table: (u64, u64),
}

#[derive(Debug)]
struct KnownDevice<R> {
    source: R,
    blocks: u32,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The device's number; 0 is the image itself.
    pub device: u16,
    /// The byte on it.
    pub offset: u64,
}

impl<R> Default for Devices<R> {
    fn default() -> Self {
        Self { all: Vec::new(), unified: Vec::new(), table: (0, 0) }
    }
}

impl<R: Source> Devices<R> {
    /// Holds the table of `image` against what was given.
    pub(super) fn open(image: &R, size: u64, superblock: &Superblock, given: Vec<R>) -> Result<Self, ReadError> {
        let has = superblock.incompat & superblock::INCOMPAT_DEVICES != 0;
        let said = if has { superblock.devices } else { 0 };
        if usize::from(said) != given.len() {
            let given = given.len();
            return Err(ReadError::unsupported(format!("{said} further devices, of which {given} were given")));
        }
        if said == 0 {
            return Ok(Self::default());
        }
        let damaged = |what: &str| ReadError::damaged(format!("the table of devices: {what}"));
        let begin = u64::from(superblock.table) * device::LENGTH as u64;
        let end = begin + u64::from(said) * device::LENGTH as u64;
        if superblock.table == 0 || end > size {
            return Err(damaged("it ends beyond the end"));
        }
        let mut devices = Self { all: Vec::with_capacity(given.len()), unified: Vec::new(), table: (begin, end) };
        for (number, source) in (1_u16..).zip(given) {
            let mut bytes = [0; device::LENGTH];
            let at = begin + u64::from(number - 1) * device::LENGTH as u64;
            if image.read_at(at, &mut bytes).map_err(ReadError::Source)? < bytes.len() {
                return Err(damaged("it ends beyond the end"));
            }
            let raw = device::Device::decode(&bytes)
                .ok_or_else(|| ReadError::unsupported(format!("addresses of 48 bits (device {number})")))?;
            let there = source.size().map_err(ReadError::Source)?;
            if u64::from(raw.blocks) << BLOCK_BITS > there {
                let said = raw.blocks;
                return Err(damaged(&format!("device {number} has {there} bytes, and should have {said} blocks")));
            }
            if raw.unified != 0 {
                if raw.unified < superblock.blocks || raw.unified.checked_add(raw.blocks).is_none() {
                    return Err(damaged(&format!("device {number} lies where other blocks are")));
                }
                devices.unified.push((raw.unified, number));
            }
            devices.all.push(KnownDevice { source, blocks: raw.blocks });
        }
        devices.unified.sort_unstable();
        let overlap = |two: &[(u32, u16)]| two[0].0 + devices.blocks(two[0].1) > two[1].0;
        if devices.unified.windows(2).any(overlap) {
            return Err(damaged("two devices lie on each other"));
        }
        Ok(devices)
    }

    /// Blocks of a device that is there.
    fn blocks(&self, number: u16) -> u32 {
        self.all[usize::from(number) - 1].blocks
    }

    fn get(&self, number: u16) -> Option<&KnownDevice<R>> {
        self.all.get(usize::from(number.checked_sub(1)?))
    }
}

impl<R: Source> Reader<R> {
    /// How many further devices it has.
    #[must_use]
    pub fn devices(&self) -> u16 {
        u16::try_from(self.devices.all.len()).unwrap_or(u16::MAX)
    }

    /// Bytes of a device; the image itself is device 0.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device_size(&self, number: u16) -> Result<u64, ReadError> {
        self.size_of(number)
    }

    /// Whose bytes a device has: those of the image, or of a further one.
    pub(super) fn source_of(&self, number: u16) -> Result<&R, ReadError> {
        if number == 0 {
            return Ok(&self.source);
        }
        self.devices.get(number).map(|device| &device.source).ok_or_else(|| no_device(number))
    }

    /// Bytes of a device.
    pub(super) fn size_of(&self, number: u16) -> Result<u64, ReadError> {
        if number == 0 {
            return Ok(self.size);
        }
        let device = self.devices.get(number).ok_or_else(|| no_device(number))?;
        Ok(u64::from(device.blocks) << BLOCK_BITS)
    }

    /// Where the block is that an address without a device means.
    pub(super) fn spot(&self, block: u32) -> Spot {
        let after = self.devices.unified.partition_point(|(begin, _)| *begin <= block);
        if let Some((begin, number)) = after.checked_sub(1).map(|at| self.devices.unified[at])
            && block - begin < self.devices.blocks(number)
        {
            return Spot { device: number, offset: u64::from(block - begin) << BLOCK_BITS };
        }
        Spot { device: 0, offset: u64::from(block) << BLOCK_BITS }
    }

    /// Returns true if so many bytes are there.
    pub(super) fn holds(&self, spot: Spot, length: u64) -> Result<bool, ReadError> {
        let size = self.size_of(spot.device)?;
        Ok(spot.offset.checked_add(length).is_some_and(|end| end <= size))
    }
}

fn no_device(number: u16) -> ReadError {
    ReadError::damaged(format!("there is no device {number}"))
}
