//! [`Devices`]: the further devices of an EROFS file that is being written, and their table for the superblock. Files whose content is on
//! them (`elsewhere`) are held against it.

use super::error::WriteError;
use super::output::Output;
use crate::Sink;
use crate::format::{device, superblock};

/// A further device of an EROFS file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub(crate) u16);

impl Device {
    /// The number: from 1 on, in the order in which devices were added, which is that in which they must be given to a reader.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// A block of a further device, and those that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBlock {
    /// Where.
    pub device: Device,
    /// The number of the block there.
    pub block: u32,
}

/// The devices of an EROFS file that is being written.
#[derive(Default)]
pub(super) struct Devices {
    /// Where the table will stand, and how many have room there.
    pub(super) table: Option<(u64, u16)>,
    pub(super) known: Vec<device::Device>,
}

impl Devices {
    /// Writes the table.
    pub(super) fn finish<S: Sink>(&self, output: &mut Output<S>) -> Result<Table, WriteError> {
        let Some((at, _)) = self.table.filter(|_| !self.known.is_empty()) else { return Ok(Table::default()) };
        let bytes: Vec<u8> = self.known.iter().flat_map(device::Device::encode).collect();
        output.put(at, &bytes)?;
        let devices = u16::try_from(self.known.len()).expect("no more were taken");
        Ok(Table { devices, at: u16::try_from(at / device::LENGTH as u64).expect("in the first blocks") })
    }

    /// The device, if these blocks are on it.
    pub(super) fn hold(&self, place: DeviceBlock, blocks: u64) -> Result<&device::Device, WriteError> {
        let known = usize::from(place.device.0).checked_sub(1).and_then(|at| self.known.get(at));
        let end = u64::from(place.block).saturating_add(blocks);
        known
            .filter(|device| end <= u64::from(device.blocks))
            .ok_or(WriteError::Misused("a file's blocks are not on a device of the image"))
    }
}

/// The table of devices for the superblock.
#[derive(Clone, Copy, Default)]
pub(super) struct Table {
    pub(super) devices: u16,
    pub(super) at: u16,
}

impl Table {
    /// The bit of the superblock's features that it needs.
    pub(super) fn feature(self) -> u32 {
        if self.devices == 0 { 0 } else { superblock::INCOMPAT_DEVICES }
    }
}
