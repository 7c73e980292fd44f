//! The arguments of `podman-store`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Let podman and CRI-O use the images of this store
///
/// Creates an additional image store of containers/storage in the root without copying layers, and prints its directory: podman
/// lists the images as read-only, runs them, and pulls none of their layers again. Every later pull and removal updates it,
/// and new layers are directories if layerFormat is auto. Images of podman's containers, also of stopped ones, are neither
/// removed nor collected. Needs a store of root. Images whose layers are EROFS files are left out and named;
/// `imagelet convert --to dir` makes directories of these.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet podman-store
  podman --storage-opt additionalimagestore=$(imagelet podman-store) run --rm busybox:1
  imagelet podman-store --remove

For good, in /etc/containers/storage.conf:
  [storage.options]
  additionalimagestores = [\"/var/lib/imagelet/podman\"]")]
pub(crate) struct PodmanStore {
    /// Where podman keeps containers, in addition to /var/lib/containers/storage: the graphroot of storage.conf, or --root. Remembered;
    /// may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "remove")]
    pub(crate) graph_root: Vec<PathBuf>,
    /// Remove it again; refused while podman uses an image of it. Take it out of storage.conf before: podman does not start where
    /// the directory is named and missing
    #[arg(long)]
    pub(crate) remove: bool,
}
