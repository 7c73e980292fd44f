//! [`Erofs`]: the erofs snapshotter, which keeps each layer as an EROFS file.

use std::io;
use std::path::Path;

use cri_api::engine::runtime_store::{Destination, LowerLayer, UnpackedForm};

use super::overlayfs;
use super::snapshot_layout::{SnapshotLayout, is_overlay, move_durably, writable_directory, wrong_destination};
use crate::Mount;

/// Marker of the snapshotter, in the directory of each of its snapshots.
const MARKER: &str = ".erofslayer";
/// The file in that directory which becomes the layer.
const LAYER: &str = "layer.erofs";

/// The erofs snapshotter.
#[derive(Debug)]
pub(super) struct Erofs;

impl SnapshotLayout for Erofs {
    fn snapshotter(&self) -> &'static str {
        "erofs"
    }

    fn form(&self) -> UnpackedForm {
        UnpackedForm::ErofsFile
    }

    fn destination(&self, mounts: &[Mount], exists: &dyn Fn(&Path) -> bool) -> Result<Destination, String> {
        let Some(directory) = writable_directory(mounts)? else { return Ok(Destination::Present) };
        match directory.parent() {
            Some(snapshot) if exists(&snapshot.join(MARKER)) => Ok(Destination::ErofsFile(snapshot.join(LAYER))),
            _ => Err(format!("{} is not in a snapshot with the file {MARKER}", directory.display())),
        }
    }

    fn place(&self, layer: &Path, destination: &Destination) -> io::Result<()> {
        match destination {
            Destination::ErofsFile(to) => move_durably(layer, to),
            Destination::Present => Ok(()),
            Destination::Directory(_) | Destination::DamagedLayer(_) => Err(wrong_destination(self, destination)),
        }
    }

    fn lower_layers(&self, mounts: &[Mount]) -> Option<Vec<LowerLayer>> {
        // Files are mounted first, each for one layer, and the overlay names their mounts.
        let files = match mounts.split_last()? {
            (last, before) if is_overlay(&last.kind) && !before.is_empty() => before,
            _ => mounts,
        };
        let file = |mount: &Mount| {
            (mount.kind.rsplit('/').next() == Some("erofs")).then(|| LowerLayer::ErofsFile(mount.source.clone().into()))
        };
        files.iter().map(file).collect::<Option<Vec<_>>>().or_else(|| overlayfs::directories(mounts))
    }
}
