//! [`destination`] and [`lower_layers`]: where the files of a layer go and where those of a chain lie, read from the mounts of snapshots.

use std::path::{Path, PathBuf};

use cri_api::engine::runtime_store::{Destination, LowerLayer};

use crate::Mount;

/// Marker of the erofs snapshotter, in the directory of each of its snapshots.
const EROFS_MARKER: &str = ".erofslayer";
/// The file in that directory which becomes the layer.
const EROFS_LAYER: &str = "layer.erofs";

/// Where the layer of a snapshot with these mounts goes. `exists` answers whether a file is there.
///
/// # Errors
/// A snapshotter that we cannot fill, with the reason: the runtime pulls the image itself.
pub fn destination(mounts: &[Mount], exists: impl Fn(&Path) -> bool) -> Result<Destination, String> {
    let last = mounts.last().ok_or("the snapshot has no mount")?;
    if last.options.iter().any(|option| option == "ro") {
        return Ok(Destination::Present);
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
    Ok(match directory.parent() {
        Some(parent) if exists(&parent.join(EROFS_MARKER)) => Destination::ErofsFile(parent.join(EROFS_LAYER)),
        _ => Destination::Directory(directory),
    })
}

/// The layers of a snapshot that is read with these mounts, the highest first; `None`: they cannot be read from outside.
pub(crate) fn lower_layers(mounts: &[Mount]) -> Option<Vec<LowerLayer>> {
    let file = |mount: &Mount| {
        (mount.kind.rsplit('/').next() == Some("erofs")).then(|| LowerLayer::ErofsFile(mount.source.clone().into()))
    };
    let (last, before) = mounts.split_last()?;
    if last.kind == "bind" && before.is_empty() {
        return Some(vec![LowerLayer::Directory(last.source.clone().into())]);
    }
    // Files are mounted first, each for one layer, and the overlay names their mounts.
    if !before.is_empty() || !is_overlay(&last.kind) {
        let files = if is_overlay(&last.kind) { before } else { mounts };
        let layers: Option<Vec<_>> = files.iter().map(file).collect();
        return layers;
    }
    let lower = last.options.iter().find_map(|option| option.strip_prefix("lowerdir="))?;
    let paths = lower.split(':').map(PathBuf::from);
    paths.map(|path| path.is_absolute().then_some(LowerLayer::Directory(path))).collect()
}

/// Returns true for an overlay, also one whose mount containerd's mount manager prepares (`format/mkdir/overlay`).
fn is_overlay(kind: &str) -> bool {
    kind.rsplit('/').next() == Some("overlay")
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
