//! Mounting an image's layers with overlayfs.

use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::open::Inner;
use crate::records::MountEntry;

/// Why something was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Not implemented yet.
    #[error("not yet")]
    NotYet,
}

/// Mounts.
///
/// # Errors
/// See [`MountError`].
pub fn mount(layers: &[PathBuf], target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
    let _ = (layers, target, writable);
    Err(MountError::NotYet)
}

/// Unmounts.
///
/// # Errors
/// See [`MountError`].
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let _ = target;
    Err(MountError::NotYet)
}

impl Inner {
    pub(crate) fn live_mounts(&self) -> Result<Vec<(PathBuf, MountEntry)>, StoreError> {
        Ok(Vec::new())
    }
}
