//! [`SnapshotLayout`], and the parts that its implementations have in common: reading the mounts of a prepared snapshot, and moving a
//! layer durably.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cri_api::engine::runtime_store::{Destination, LowerLayer, UnpackedForm};

use crate::Mount;

/// Layout of image layers on disk in a snapshotter.
pub trait SnapshotLayout: Send + Sync + std::fmt::Debug {
    /// Returns the name of the snapshotter.
    fn snapshotter(&self) -> &'static str;

    /// Returns the form in which layers are unpacked for the snapshotter.
    fn form(&self) -> UnpackedForm;

    /// Returns the destination of the layer of a prepared snapshot with these mounts. `exists` returns true if a file exists.
    ///
    /// # Errors
    /// A snapshot that cannot be filled, with the reason: the runtime pulls the image itself.
    fn destination(&self, mounts: &[Mount], exists: &dyn Fn(&Path) -> bool) -> Result<Destination, String>;

    /// Moves an unpacked layer, whose files are durable, to its destination on the same file system, and makes the move durable.
    /// Blocks.
    ///
    /// # Errors
    /// The move failed; the destination is not empty, or of another layout.
    fn place(&self, layer: &Path, destination: &Destination) -> io::Result<()>;

    /// Exchanges the files of a committed layer for unpacked ones of another form. Blocks.
    ///
    /// # Errors
    /// A system call failed; the snapshotter has layers of one form only.
    fn exchange(&self, _: &LowerLayer, _: &Path) -> io::Result<()> {
        Err(io::Error::other(format!("the snapshotter {} takes layers of one form only", self.snapshotter())))
    }

    /// Returns the layers of a snapshot that is read with these mounts, the highest first; `None` if they cannot be read from
    /// outside.
    fn lower_layers(&self, mounts: &[Mount]) -> Option<Vec<LowerLayer>>;
}

/// Returns the directory of a prepared snapshot that its files go into; `None` if the snapshot is only read, so that the store has
/// its layer.
pub(super) fn writable_directory(mounts: &[Mount]) -> Result<Option<PathBuf>, String> {
    let last = mounts.last().ok_or("the snapshot has no mount")?;
    if last.options.iter().any(|option| option == "ro") {
        return Ok(None);
    }
    let directory = match last.kind.as_str() {
        "bind" if mounts.len() == 1 => PathBuf::from(&last.source),
        kind if is_overlay(kind) => {
            if last.options.iter().any(|option| option == "userxattr") {
                return Err("the snapshotter mounts with userxattr".to_owned());
            }
            let upper = last.options.iter().find_map(|option| option.strip_prefix("upperdir="));
            PathBuf::from(upper.ok_or("the overlay has no upper directory")?)
        }
        kind => return Err(format!("the snapshot is a mount of the type {kind:?}")),
    };
    if !directory.is_absolute() {
        return Err(format!("{} is not an absolute path", directory.display()));
    }
    Ok(Some(directory))
}

/// Returns true for an overlay, also one whose mount containerd's mount manager prepares (`format/mkdir/overlay`).
pub(super) fn is_overlay(kind: &str) -> bool {
    kind.rsplit('/').next() == Some("overlay")
}

/// Moves a layer, and makes the move durable.
pub(super) fn move_durably(layer: &Path, to: &Path) -> io::Result<()> {
    rustix::fs::rename(layer, to)?;
    let parent = to.parent().ok_or_else(|| io::Error::other(format!("{} has no parent", to.display())))?;
    File::open(parent)?.sync_all()
}

/// Returns the error for a destination of another layout.
pub(super) fn wrong_destination(layout: &dyn SnapshotLayout, destination: &Destination) -> io::Error {
    let message = format!("a layer of the snapshotter {} does not go to {destination:?}", layout.snapshotter());
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
