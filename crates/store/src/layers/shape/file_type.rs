//! [`kind_of`]: the type of the file by which a shape recognizes that a layer is present.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::disk::layer::LayerId;

/// Returns the type of a layer's file by this name. A layer that cannot be inspected counts as missing, and that is logged: a
/// pull that needs the layer fetches it again.
pub(super) fn kind_of(layers: &OwnedFd, name: &str, id: LayerId) -> Option<FileType> {
    match rustix::fs::statat(layers, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(error) => {
            tracing::warn!(%error, layer = %id, "a layer cannot be looked at, and counts as missing");
            None
        }
    }
}
