//! Paths of sockets: the path of the store's socket, and a way to reach one whose path is too long for the kernel. Opens no
//! connection. Called by both ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The longest path that the kernel takes, in bytes without the end.
const LONGEST: usize = 107;

/// The socket of the process that holds `root`.
pub(crate) fn store_socket(root: &Path) -> PathBuf {
    root.join("store.sock")
}

/// A path to the socket at `path` that is short enough as long as the directory is open, which is the second value. Blocks for as
/// long as opening a directory takes.
pub(crate) fn reachable(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok((path.to_owned(), None)) };
    if path.as_os_str().len() <= LONGEST {
        return Ok((path.to_owned(), None));
    }
    let directory = File::open(parent)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((short, Some(directory)))
}
