//! How snapshotters keep the layers of images on disk. Each form is one file: [`overlayfs`], its EROFS files in [`overlayfs_erofs`], and
//! the snapshotter [`erofs`]. A
//! layout reads the mounts of snapshots, and moves an unpacked layer into a prepared one. Knows no image and calls no containerd.

mod erofs;
mod overlayfs;
mod overlayfs_erofs;
mod snapshot_layout;

pub(crate) use overlayfs::layer_of;
pub use snapshot_layout::SnapshotLayout;

/// Returns the layout of a snapshotter; `None` if it cannot be filled. With `files`, new layers of the snapshotter overlayfs are
/// EROFS files; a store can have layers of both forms.
#[must_use]
pub fn layout_of(snapshotter: &str, files: bool) -> Option<&'static dyn SnapshotLayout> {
    match (snapshotter, files) {
        ("overlayfs", false) => Some(&overlayfs::Overlayfs { files: false }),
        ("overlayfs", true) => Some(&overlayfs::Overlayfs { files: true }),
        ("erofs", _) => Some(&erofs::Erofs),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
