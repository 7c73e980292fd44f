//! Addresses of blocks, whichever way they name a device: the look-ups of [`Reader`] in its [`super::devices::Devices`].

use super::devices::Spot;
use super::{ReadError, Reader};
use crate::Source;
use crate::format::BLOCK_BITS;

impl<R: Source> Reader<R> {
    /// How many further devices it has.
    #[must_use]
    pub fn devices(&self) -> u16 {
        u16::try_from(self.devices.all.len()).unwrap_or(u16::MAX)
    }

    /// Bytes of a device; the EROFS file itself is device 0.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device_size(&self, number: u16) -> Result<u64, ReadError> {
        self.size_of(number)
    }

    /// Whose bytes a device has: those of the EROFS file, or of a further one.
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
