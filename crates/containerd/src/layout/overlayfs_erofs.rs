//! EROFS files under the snapshotter overlayfs: a snapshot's directory `fs` is a link to the mounted file. Overlayfs takes any directory
//! for a layer, and containerd never asks what the path is. [`base::layer_mount`] has the form on disk.

use std::fs::File;
use std::io;
use std::path::Path;

use base::layer_mount::LayerMount;
use erofs::Reader;
use rustix::fs::{Mode, OFlags};

/// Makes an unpacked EROFS file with a nested tree the layer whose tree is at `to`. The root of the tree becomes the root of
/// containers: see [`super::overlayfs`].
pub(super) fn place(layer: &Path, to: &Path) -> io::Result<()> {
    make_plain(layer)?;
    LayerMount::of(to).ok_or_else(|| io::Error::other(format!("{} has no parent", to.display())))?.place(layer)
}

/// Gives the root of the tree the owner 0:0, the mode 0755 and no extended attributes except those of overlayfs, durably.
pub(super) fn make_plain(layer: &Path) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(layer, flags, Mode::empty())?);
    let reader = Reader::open(&file)?;
    if !reader.is_nested() {
        return Err(io::Error::other(format!("{} has its tree at the top", layer.display())));
    }
    let root = reader.inode(reader.root())?;
    let all = reader.xattrs(&root)?;
    let xattrs: Vec<_> = all.iter().filter(|(name, _)| name.starts_with(b"trusted.overlay.")).cloned().collect();
    if (root.uid, root.gid, root.mode, xattrs.len()) == (0, 0, 0o755, all.len()) {
        return Ok(());
    }
    let attributes = erofs::Attributes { mode: 0o755, uid: 0, gid: 0, mtime: root.mtime, xattrs };
    erofs::patch(&mut file, root.nid, &attributes).map_err(io::Error::other)?;
    file.sync_all()
}
