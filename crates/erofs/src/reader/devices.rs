//! [`Devices`]: the further devices of an EROFS file, its table of them held against what was given. The reader opens them, and finds
//! blocks on them (`addresses`).

use super::ReadError;
use crate::Source;
use crate::format::superblock::{self, Superblock};
use crate::format::{BLOCK_BITS, device};

/// The further devices of an EROFS file.
#[derive(Debug)]
pub(super) struct Devices<R> {
    pub(super) all: Vec<KnownDevice<R>>,
    /// Where each begins in addresses that name no device, in their order.
    pub(super) unified: Vec<(u32, u16)>,
    /// Where the table is in the EROFS file.
    pub(super) table: (u64, u64),
}

#[derive(Debug)]
pub(super) struct KnownDevice<R> {
    pub(super) source: R,
    pub(super) blocks: u32,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The device's number; 0 is the EROFS file itself.
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
    pub(super) fn blocks(&self, number: u16) -> u32 {
        self.all[usize::from(number) - 1].blocks
    }

    pub(super) fn get(&self, number: u16) -> Option<&KnownDevice<R>> {
        self.all.get(usize::from(number.checked_sub(1)?))
    }
}
