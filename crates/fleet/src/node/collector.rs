//! [`Collector`]: image collection on this node as pre-pulls need it: pins, space, and removal of unused images. The binary implements it
//! over the collection of the agent; tests have one in memory.

use async_trait::async_trait;
use image_manager::gc::Pins;

use crate::api::{DiskReport, MinFree};

/// Image collection of a node.
#[async_trait]
pub trait Collector: Send + Sync + 'static {
    /// Replaces the pins of image sets. A pinned image is not collected, whether it is present already or not.
    ///
    /// # Errors
    /// The pins cannot be stored. The text is one line.
    async fn pin(&self, pins: Pins) -> Result<(), String>;

    /// Returns the space of the image file system; `None` if it cannot be measured.
    async fn space(&self) -> Option<ImageSpace>;

    /// Removes unused images until so many bytes are free, as far as possible.
    async fn reclaim(&self, bytes: u64);

    /// Removes the image with this ID unless something needs it. Returns true if the image was removed or is absent.
    ///
    /// # Errors
    /// The image cannot be removed, or its uses are unknown. The text is one line.
    async fn remove_unused(&self, id: &str) -> Result<bool, String>;
}

/// Space of the image file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSpace {
    /// Size in bytes.
    pub capacity: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes of all images.
    pub images: u64,
    /// Bytes that image collection could free.
    pub reclaimable: u64,
}

impl ImageSpace {
    pub(super) fn report(self) -> DiskReport {
        DiskReport {
            capacity_bytes: self.capacity,
            free_bytes: self.free,
            images_bytes: self.images,
            reclaimable_bytes: self.reclaimable,
        }
    }
}

/// Unpacked layers take about twice the bytes of their compressed form.
const UNPACKED: u64 = 2;

/// Answer to the question whether an image fits on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The image fits.
    Fits,
    /// The image fits after unused images were removed, until so many bytes are free.
    AfterReclaim(u64),
    /// The image does not fit: so many bytes would have to be free.
    TooLarge(u64),
}

/// Returns whether layers with these compressed bytes fit, and leave the space that every set asks for. Without a number of bytes only
/// that space is compared.
pub(super) fn fit(missing: Option<u64>, space: ImageSpace, min_free: &[MinFree]) -> Fit {
    if missing == Some(0) {
        return Fit::Fits;
    }
    let stays_free = min_free.iter().map(|free| free.of(space.capacity)).max().unwrap_or(0);
    let needed = missing.unwrap_or(0).saturating_mul(UNPACKED).saturating_add(stays_free);
    if needed <= space.free {
        Fit::Fits
    } else if needed <= space.free.saturating_add(space.reclaimable) {
        Fit::AfterReclaim(needed)
    } else {
        Fit::TooLarge(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_fits_if_its_layers_leave_the_space_that_the_sets_ask_for() {
        let space = ImageSpace { capacity: 1000, free: 300, images: 500, reclaimable: 200 };
        let ten = [MinFree::Percent(10)];
        for (missing, min_free, want) in [
            (Some(0), &[MinFree::Percent(100)][..], Fit::Fits),
            (Some(100), &ten[..], Fit::Fits),
            (Some(101), &ten[..], Fit::AfterReclaim(302)),
            (Some(200), &ten[..], Fit::AfterReclaim(500)),
            (Some(201), &ten[..], Fit::TooLarge(502)),
            (Some(150), &[][..], Fit::Fits),
            (Some(1), &[MinFree::Bytes(299), MinFree::Percent(1)][..], Fit::AfterReclaim(301)),
            (Some(u64::MAX), &ten[..], Fit::TooLarge(u64::MAX)),
            (None, &[][..], Fit::Fits),
            (None, &[MinFree::Percent(30)][..], Fit::Fits),
            (None, &[MinFree::Percent(31)][..], Fit::AfterReclaim(310)),
            (None, &[MinFree::Percent(51)][..], Fit::TooLarge(510)),
        ] {
            assert_eq!(fit(missing, space, min_free), want, "{missing:?} {min_free:?}");
        }
    }
}
