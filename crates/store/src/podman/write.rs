//! Writes of single files of the view: each becomes visible as a whole. Called by [`super::files`] and [`super::placed`].

use std::io;
use std::path::{Path, PathBuf};

/// Short names of layers, below the layers.
pub(super) const LINKS: &str = "l";

pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match path.symlink_metadata()?.is_dir() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} is no directory", path.display()))),
        },
        made => made,
    }
}

/// The name under which something is made before it gets its own.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension("new")
}

pub(super) fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    std::fs::write(&new, content)?;
    std::fs::rename(&new, path)
}

pub(super) fn write_link(path: &Path, target: &Path) -> io::Result<()> {
    let new = temporary(path);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &new)?;
    std::fs::rename(&new, path)
}
