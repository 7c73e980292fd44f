//! [`Overlayfs`]: the snapshotter overlayfs, which keeps each layer as a directory, or as an EROFS file that is mounted in place of the
//! directory ([`super::overlayfs_erofs`]).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use base::layer_mount::LayerMount;
use cri_api::engine::runtime_store::{Destination, LowerLayer, UnpackedForm};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid};

use super::overlayfs_erofs;
use super::snapshot_layout::{SnapshotLayout, is_overlay, move_durably, writable_directory, wrong_destination};
use crate::Mount;
use crate::mounted_layers::TREE;

/// The snapshotter overlayfs.
#[derive(Debug)]
pub(super) struct Overlayfs {
    /// True if new layers are EROFS files.
    pub(super) files: bool,
}

impl SnapshotLayout for Overlayfs {
    fn snapshotter(&self) -> &'static str {
        "overlayfs"
    }

    fn form(&self) -> UnpackedForm {
        if self.files { UnpackedForm::NestedErofsFile } else { UnpackedForm::Directory }
    }

    fn destination(&self, mounts: &[Mount], _exists: &dyn Fn(&Path) -> bool) -> Result<Destination, String> {
        Ok(writable_directory(mounts)?.map_or(Destination::Present, Destination::Directory))
    }

    /// Moves the layer. The root of the layer gets the owner 0:0, the mode 0755 and no extended attributes except those of
    /// overlayfs, like in containerd: it becomes the root of containers.
    fn place(&self, layer: &Path, destination: &Destination) -> io::Result<()> {
        match destination {
            // The files of a layer on another chain can have the other form.
            Destination::Directory(to) | Destination::DamagedLayer(to) if layer.is_file() => {
                overlayfs_erofs::place(layer, to)
            }
            Destination::DamagedLayer(to) => {
                make_plain(layer)?;
                let damaged = LayerMount::of(to).ok_or_else(|| wrong_destination(self, destination))?;
                damaged.to_directory(layer)
            }
            Destination::Directory(to) => {
                make_plain(layer)?;
                move_durably(layer, to)
            }
            Destination::Present => Ok(()),
            Destination::ErofsFile(_) => Err(wrong_destination(self, destination)),
        }
    }

    fn exchange(&self, layer: &LowerLayer, files: &Path) -> io::Result<()> {
        let layer = layer_of(layer).ok_or_else(|| io::Error::other("the layer has no directory"))?;
        if files.is_file() {
            overlayfs_erofs::make_plain(files)?;
            return layer.to_file(files);
        }
        make_plain(files)?;
        layer.to_directory(files)
    }

    fn lower_layers(&self, mounts: &[Mount]) -> Option<Vec<LowerLayer>> {
        directories(mounts)
    }
}

/// Returns the directories of a snapshot that is one mount, the highest first.
pub(super) fn directories(mounts: &[Mount]) -> Option<Vec<LowerLayer>> {
    let [mount] = mounts else { return None };
    if mount.kind == "bind" {
        return Some(vec![lower_layer(mount.source.clone().into())]);
    }
    if !is_overlay(&mount.kind) {
        return None;
    }
    let lower = mount.options.iter().find_map(|option| option.strip_prefix("lowerdir="))?;
    let paths = lower.split(':').map(PathBuf::from);
    paths.map(|path| path.is_absolute().then(|| lower_layer(path))).collect()
}

/// Returns the place of a layer in the directory of a snapshot.
pub(crate) fn layer_of(layer: &LowerLayer) -> Option<LayerMount> {
    match layer {
        LowerLayer::Directory(tree) => LayerMount::of(tree),
        LowerLayer::ErofsFile(file) => LayerMount::of(&file.with_file_name(TREE)),
    }
}

fn lower_layer(path: PathBuf) -> LowerLayer {
    match LayerMount::of(&path).filter(LayerMount::is_linked) {
        Some(layer) => LowerLayer::ErofsFile(layer.file()),
        None => LowerLayer::Directory(path),
    }
}

/// Gives the root of a layer the owner and mode of the root of a snapshot, and removes the extended attributes that the layer set,
/// durably. Attributes of security modules are the machine's own.
fn make_plain(root: &Path) -> io::Result<()> {
    let found = rustix::fs::lstat(root)?;
    let mut is_changed = false;
    if (found.st_uid, found.st_gid, found.st_mode & 0o7777) != (0, 0, 0o755) {
        rustix::fs::chownat(CWD, root, Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::chmod(root, Mode::from_raw_mode(0o755))?;
        is_changed = true;
    }
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(root, &mut names[..])?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let of_the_layer = name.starts_with(b"user.") || name.starts_with(b"trusted.") || name.starts_with(b"system.");
        if of_the_layer && !name.starts_with(b"trusted.overlay.") {
            rustix::fs::lremovexattr(root, name)?;
            is_changed = true;
        }
    }
    if is_changed { File::open(root)?.sync_all() } else { Ok(()) }
}
