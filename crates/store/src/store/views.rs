//! The public operations on mounts and views.

use std::path::Path;

use crate::error::{ResolveError, StoreError};
use crate::maintenance::lease::Lease;
use crate::mount::{ImageMount, MountError};
use crate::records::entries::ImageRecord;
use crate::store::parts::Store;
use crate::view::Stack;

impl Store {
    /// Mounts an image, and keeps it from being removed while it is mounted.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn mount_image(&self, image: &ImageRecord, target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
        self.parts.mounts.mount_image(image, target, writable)
    }

    /// Takes an image's mount away.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn unmount_image(&self, target: &Path) -> Result<(), MountError> {
        self.parts.mounts.unmount_image(target)
    }

    /// The images that are mounted, by place. Forgets what is not mounted any more.
    ///
    /// # Errors
    /// The database or the table of mounts could not be read.
    pub fn mounts(&self) -> Result<Vec<ImageMount>, StoreError> {
        self.parts.mounts.mounts()
    }

    /// The layers of what `text` means: an image by name or id, or one layer by its diff id or by the digest under which a
    /// manifest names it. Leased, so that they stay until `lease` goes. `None`: there is no such thing, or not whole.
    ///
    /// # Errors
    /// As for [`Store::resolve`].
    pub fn stack(&self, lease: &Lease, text: &str) -> Result<Option<Stack>, ResolveError> {
        self.parts.images.stack(lease, text)
    }
}
