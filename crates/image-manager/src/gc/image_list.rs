//! [`ImageList`]: the last list of images, for a Node's status. A loop refreshes it.

use std::sync::Arc;

use cri_api::Image;
use parking_lot::Mutex;

/// A cached list of images.
#[derive(Default)]
pub(super) struct ImageList {
    /// Guards the list, the largest image first; `None` until the first refresh.
    images: Mutex<Option<Arc<[Image]>>>,
}

impl ImageList {
    /// Replaces the list.
    pub(super) fn replace(&self, mut images: Vec<Image>) {
        images.sort_by(by_size);
        *self.images.lock() = Some(images.into());
    }

    /// The last list, the largest image first; `None` before the first refresh.
    pub(super) fn get(&self) -> Option<Arc<[Image]>> {
        self.images.lock().clone()
    }
}

/// Orders images by size, the largest first, and those of one size by id, the last first.
pub(super) fn by_size(a: &Image, b: &Image) -> std::cmp::Ordering {
    b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id))
}
