//! How snapshotters keep the layers of images on disk. Each snapshotter that can be filled is one file: [`overlayfs`] and [`erofs`]. A
//! layout reads the mounts of snapshots, and moves an unpacked layer into a prepared one. Knows no image and calls no containerd.

mod erofs;
mod overlayfs;
mod snapshot_layout;

pub use snapshot_layout::SnapshotLayout;

/// The layouts of all snapshotters that can be filled.
const LAYOUTS: [&dyn SnapshotLayout; 2] = [&overlayfs::Overlayfs, &erofs::Erofs];

/// Returns the layout of a snapshotter; `None` if it cannot be filled.
#[must_use]
pub fn layout_of(snapshotter: &str) -> Option<&'static dyn SnapshotLayout> {
    LAYOUTS.into_iter().find(|layout| layout.snapshotter() == snapshotter)
}

#[cfg(test)]
mod tests;
