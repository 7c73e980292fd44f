//! Arguments of the commands that read an image's files without mounting it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// List files of an image or a layer, without mounting it
///
/// Needs no root. An image is shown as a container would see it: layers on each other, whiteouts and opaque directories
/// applied, symbolic links resolved within the image. A single layer, named by its diff id or by the digest in a manifest,
/// shows its whiteouts as well. If an agent holds the root, it is asked to keep the layers meanwhile.
///
/// Writes names, one a line, in the order of bytes; with -l or -o wide also mode, links, owner, group, size and time; with -o json
/// or yaml everything there is, extended attributes and the layer that each entry is from included.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet ls docker.io/library/busybox:1
  imagelet ls -l busybox:1 /etc
  imagelet ls -R busybox:1 | grep passwd
  imagelet ls -R -o wide sha256:5d0d…        one layer, and which layer each entry is from")]
pub(crate) struct Ls {
    /// Image by name or id, or a layer by its digest; IMAGE:PATH is the same as IMAGE PATH
    #[arg(value_name = "IMAGE|LAYER")]
    pub(crate) image: OsString,
    /// Path to list [default: /]
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<OsString>,
    /// With mode, links, owner, group, size, time, and targets of symbolic links
    #[arg(short)]
    pub(crate) long: bool,
    /// With everything below, by path
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// Write files of an image or a layer to standard output, without mounting it
///
/// Needs no root. Symbolic links are resolved within the image.
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
/// As `docker cp`: a directory that is there takes the source under its name, or only what is in it if PATH ends in `/.`; a DEST that
/// is not there is made. Files replace files, a single one when its copy is whole; at a DEST that is a symbolic link, what it leads to;
/// a device or a pipe is written to. Directories are merged. Modes, times and extended attributes come along, hard
/// links and holes are kept. As root, owners and devices are kept, too; otherwise one line says what could not be set. Symbolic
/// links are copied as they are, and nothing is ever written outside DEST.
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
