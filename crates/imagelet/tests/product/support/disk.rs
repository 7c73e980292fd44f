//! A small ext4 in a file, mounted over a loop device: a disk that a test can fill.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::process::{Scratch, need_root, run, tool};

/// Makes and mounts one of this many MiB. It goes with the scratch.
#[track_caller]
pub(crate) fn ext4(scratch: &Scratch, name: &str, mebibytes: u64) -> PathBuf {
    need_root();
    let image = scratch.join(&format!("{name}.img"));
    File::create(&image).and_then(|f| f.set_len(mebibytes << 20)).expect("make a disk image");
    run(tool("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
    let mountpoint = scratch.directory(name);
    run(tool("mount").args(["-o", "loop"]).arg(&image).arg(&mountpoint));
    mountpoint
}

/// Free bytes and inodes of the file system that holds a path.
pub(crate) fn free(path: &Path) -> (u64, u64) {
    let stat = rustix::fs::statvfs(path).expect("statvfs");
    (stat.f_bavail * stat.f_frsize, stat.f_favail)
}
