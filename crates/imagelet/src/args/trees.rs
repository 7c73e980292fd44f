//! Arguments of the commands that read an image's files without mounting it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// List files of an image or a layer, without mounting it
///
/// Needs no root privileges. Shows an image as a container would see it: with whiteouts and opaque directories applied, and
/// symbolic links resolved within the image. A single layer, named by its diff id or by its digest in a manifest, is shown with
/// its whiteouts. If an agent owns the root, it keeps the layers during the command.
///
/// Prints one name per line, sorted by bytes; with -l or -o wide also mode, links, owner, group, size and time; with -o json or
/// yaml also extended attributes and the layer of each entry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet ls docker.io/library/busybox:1
  imagelet ls -l busybox:1 /etc
  imagelet ls -R busybox:1 | grep passwd
  imagelet ls -R -o wide sha256:5d0d…        one layer, and the layer of each entry")]
pub(crate) struct Ls {
    /// Image by name or id, or a layer by its digest; IMAGE:PATH is the same as IMAGE PATH
    #[arg(value_name = "IMAGE|LAYER")]
    pub(crate) image: OsString,
    /// Path to list [default: /]
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<OsString>,
    /// Also print mode, links, owner, group, size, time, and targets of symbolic links
    #[arg(short)]
    pub(crate) long: bool,
    /// List directories recursively, by path
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// Write files of an image or a layer to standard output, without mounting it
///
/// Needs no root privileges. Symbolic links are resolved within the image.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet cat docker.io/library/busybox:1 /etc/passwd
  imagelet cat busybox:1:/etc/passwd")]
pub(crate) struct Cat {
    /// Image by name or id, or a layer by its digest; IMAGE:PATH for a single file
    #[arg(value_name = "IMAGE|LAYER")]
    pub(crate) image: OsString,
    /// Files
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// Copy files and directories out of an image or a layer, without mounting it
///
/// As `docker cp`: into an existing directory the source is copied under its name, or only its content if PATH ends in `/.`; a
/// missing DEST is created. Files replace files, a single one atomically; a DEST that is a symbolic link is followed; a device or
/// a pipe is written to. Directories are merged. Modes, times, extended attributes, hard links and holes are preserved; as root,
/// also owners and devices, otherwise one line lists what could not be set. Symbolic links are copied as links, and nothing is
/// written outside DEST.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet cp docker.io/library/busybox:1:/bin/busybox .
  imagelet cp busybox:1:/etc ./etc-of-busybox
  imagelet cp busybox:1:/. ./rootfs
  imagelet cp busybox:1:/etc - | tar -t")]
pub(crate) struct Cp {
    /// Image by name or id, or a layer by its digest, and a path in it; may also be given as two words, IMAGE PATH
    #[arg(value_name = "IMAGE:PATH")]
    pub(crate) source: OsString,
    /// Destination; `-` writes a tar stream to standard output, with owners and devices as the image has them
    #[arg(value_name = "DEST|-", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
    /// The destination, if image and path are two words
    #[arg(hide = true, value_hint = ValueHint::AnyPath)]
    pub(crate) target_of_two: Option<PathBuf>,
    /// Copy the target of a symbolic link at PATH, and not the link
    #[arg(short = 'L', long)]
    pub(crate) follow_link: bool,
}
