//! [`LayerNode`]: what one layer has at a path, the same for every shape.

use super::attributes::Stat;

/// A file of a layer, found by its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerNode {
    pub(super) stat: Stat,
    /// The number by which an image file finds it again; nothing for directories.
    pub(super) nid: u64,
}

/// Returns true if overlayfs keeps something of its own in attributes of this name.
pub(super) fn is_of_overlayfs(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}
