//! hostPath volumes: the required file or directory is checked, or made, before a container gets it. Follows links: the
//! path is the node's own, and an author of manifests may name any.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt, OpenOptionsExt as _};
use std::path::Path;

use crate::pod::HostPathType;

/// Looks at a path, and makes what its type allows to be made. The words are the kubelet's.
pub(super) fn check(path: &str, wanted: Option<HostPathType>) -> Result<(), String> {
    let Some(wanted) = wanted else { return Ok(()) };
    let found = match fs::metadata(path) {
        Ok(found) => Some(found.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("hostPath type check failed: {path}: {error}")),
    };
    let is = |fits: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(fits);
    let fits = match wanted {
        HostPathType::DirectoryOrCreate if found.is_none() => {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
            return made.map_err(|error| format!("mkdir {path}: {error}"));
        }
        HostPathType::FileOrCreate if found.is_none() => return make_file(Path::new(path)),
        HostPathType::DirectoryOrCreate | HostPathType::Directory => is(fs::FileType::is_dir),
        HostPathType::FileOrCreate | HostPathType::File => is(|kind| !kind.is_dir()),
        HostPathType::Socket => is(FileTypeExt::is_socket),
        HostPathType::CharDevice => is(FileTypeExt::is_char_device),
        HostPathType::BlockDevice => is(FileTypeExt::is_block_device),
    };
    let what = match wanted {
        HostPathType::DirectoryOrCreate | HostPathType::Directory => "a directory",
        HostPathType::FileOrCreate | HostPathType::File => "a file",
        HostPathType::Socket => "a socket file",
        HostPathType::CharDevice => "a character device",
        HostPathType::BlockDevice => "a block device",
    };
    if fits { Ok(()) } else { Err(format!("hostPath type check failed: {path} is not {what}")) }
}

fn make_file(path: &Path) -> Result<(), String> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("open {}: {error}", path.display())),
    }
}
