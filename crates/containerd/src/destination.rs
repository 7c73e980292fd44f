//! [`destination`]: where the files of a layer go, read from the mounts of its prepared snapshot.

use std::path::{Path, PathBuf};

use crate::Mount;

/// Marker of the erofs snapshotter, in the directory of each of its snapshots.
const EROFS_MARKER: &str = ".erofslayer";
/// The file in that directory which becomes the layer.
const EROFS_LAYER: &str = "layer.erofs";

/// Where a layer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This empty directory is replaced by one with the layer's files.
    Directory(PathBuf),
    /// The layer becomes this EROFS file.
    ErofsFile(PathBuf),
    /// The snapshotter has the layer already: the snapshot is committed as it is.
    Present,
    /// A snapshotter that we cannot fill, with the reason: the runtime pulls the image itself.
    Unknown(String),
}

/// Where the layer of a snapshot with these mounts goes. `exists` answers whether a file is there.
#[must_use]
pub fn destination(mounts: &[Mount], exists: impl Fn(&Path) -> bool) -> Destination {
    let Some(last) = mounts.last() else { return Destination::Unknown("the snapshot has no mount".to_owned()) };
    if last.options.iter().any(|option| option == "ro") {
        return Destination::Present;
    }
    let directory = match last.kind.as_str() {
        "bind" if mounts.len() == 1 => PathBuf::from(&last.source),
        kind if is_overlay(kind) => {
            if last.options.iter().any(|option| option == "userxattr") {
                return Destination::Unknown("the snapshotter mounts with userxattr".to_owned());
            }
            match last.options.iter().find_map(|option| option.strip_prefix("upperdir=")) {
                Some(upper) => PathBuf::from(upper),
                None => return Destination::Unknown("the overlay has no upper directory".to_owned()),
            }
        }
        kind => return Destination::Unknown(format!("the snapshot is a mount of the type {kind:?}")),
    };
    if !directory.is_absolute() {
        return Destination::Unknown(format!("{} is not an absolute path", directory.display()));
    }
    match directory.parent() {
        Some(parent) if exists(&parent.join(EROFS_MARKER)) => Destination::ErofsFile(parent.join(EROFS_LAYER)),
        _ => Destination::Directory(directory),
    }
}

/// Returns true for an overlay, also one whose mount containerd's mount manager prepares (`format/mkdir/overlay`).
fn is_overlay(kind: &str) -> bool {
    kind.rsplit('/').next() == Some("overlay")
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
