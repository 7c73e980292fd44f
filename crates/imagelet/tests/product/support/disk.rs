//! Small file systems in files, mounted over loop devices: disks that a test can fill, with bytes or with files. They are removed
//! with their scratch, also when the test panics (see [`Scratch`]).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use super::process::{need_root, run, tool};
use super::scratch::Scratch;

/// The file system to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopFs {
    kind: &'static str,
    mebibytes: u64,
    inodes: Option<u64>,
}

impl LoopFs {
    /// An ext4 of this many MiB, without blocks that only root may use.
    pub(crate) fn ext4(mebibytes: u64) -> Self {
        Self { kind: "ext4", mebibytes, inodes: None }
    }

    /// An xfs of this many MiB: 300 at least.
    pub(crate) fn xfs(mebibytes: u64) -> Self {
        Self { kind: "xfs", mebibytes, inodes: None }
    }

    /// A btrfs of this many MiB: 128 at least. It makes inodes as it needs them.
    pub(crate) fn btrfs(mebibytes: u64) -> Self {
        Self { kind: "btrfs", mebibytes, inodes: None }
    }

    /// Sets the number of inodes; an xfs takes the next percentage of its size.
    pub(crate) fn inodes(self, inodes: u64) -> Self {
        Self { inodes: Some(inodes), ..self }
    }

    /// Makes it below the scratch and mounts it there. The answer is where.
    #[track_caller]
    pub(crate) fn mount(self, scratch: &Scratch, name: &str) -> PathBuf {
        need_root();
        let image = scratch.join(&format!("{name}.img"));
        let bytes = self.mebibytes << 20;
        File::create(&image).and_then(|f| f.set_len(bytes)).expect("make a disk image");
        let mut make = tool(&format!("mkfs.{}", self.kind));
        match self.kind {
            "ext4" => make.args(["-q", "-m", "0"]).args(self.inodes.map(|n| format!("-N{n}"))),
            "btrfs" => make.arg("-q"),
            // An inode of an xfs takes 512 bytes.
            _ => make.arg("-q").args(self.inodes.map(|n| format!("-imaxpct={}", (n * 512 * 100).div_ceil(bytes)))),
        };
        run(make.arg(&image));
        let mountpoint = scratch.directory(name);
        run(tool("mount").args(["-t", self.kind, "-o", "loop"]).arg(&image).arg(&mountpoint));
        share(&mountpoint);
        mountpoint
    }
}

/// Has mounts below this one seen in all namespaces of mounts that are made from now on, as on a machine with systemd.
#[track_caller]
pub(crate) fn share(mountpoint: &Path) {
    run(tool("mount").arg("--make-shared").arg(mountpoint));
}

/// Bytes and inodes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) capacity: u64,
    pub(crate) free: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl Space {
    /// Of the file system that holds a path.
    pub(crate) fn of(path: &Path) -> Self {
        let stat = rustix::fs::statvfs(path).expect("statvfs");
        Self {
            capacity: stat.f_blocks * stat.f_frsize,
            free: stat.f_bavail * stat.f_frsize,
            inodes: stat.f_files,
            inodes_free: stat.f_favail,
        }
    }

    /// Percent used as the kubelet counts it.
    pub(crate) fn used_percent(self) -> u64 {
        100 - self.free * 100 / self.capacity
    }
}

/// Free bytes and inodes of the file system that holds a path.
pub(crate) fn free(path: &Path) -> (u64, u64) {
    let space = Space::of(path);
    (space.free, space.inodes_free)
}

/// A file, or a tree of files, that is not the program's: it only takes space.
pub(crate) struct Foreign(PathBuf);

impl Foreign {
    /// Writes a file that leaves this many bytes free, within a few blocks; with 0, none at all.
    #[track_caller]
    pub(crate) fn leaving(disk: &Path, bytes: u64) -> Self {
        let path = disk.join("foreign");
        let file = File::options().create(true).append(true).open(&path).expect("make a foreign file");
        // A file system needs blocks to note which blocks a file has: what is left shrinks by more than was asked for.
        let mut step = 1 << 30;
        while step >= 512 {
            let (left, length) = (free(disk).0, file.metadata().expect("stat").len());
            let wanted = left.saturating_sub(bytes).min(step);
            if wanted == 0 && left <= bytes {
                break;
            }
            if wanted < 512 || rustix::fs::fallocate(&file, FallocateFlags::empty(), length, wanted).is_err() {
                step /= 2;
            }
        }
        let left = free(disk).0;
        assert!(left <= bytes + (64 << 10), "{left} bytes are left, not {bytes}");
        Self(path)
    }

    /// Creates empty files until only this many inodes are free.
    #[track_caller]
    pub(crate) fn leaving_inodes(disk: &Path, inodes: u64) -> Self {
        let path = disk.join("foreign");
        fs::create_dir_all(&path).expect("make a foreign directory");
        for number in 0.. {
            if free(disk).1 <= inodes {
                break;
            }
            // A directory of many files grows by blocks: two thousand are enough for one.
            let directory = path.join((number / 2000).to_string());
            let made = fs::create_dir_all(&directory).and_then(|()| File::create(directory.join(number.to_string())));
            if made.is_err() {
                break;
            }
        }
        let left = free(disk).1;
        assert!(left <= inodes.max(64), "{left} inodes are left, not {inodes}");
        Self(path)
    }

    /// Takes it away.
    #[track_caller]
    pub(crate) fn remove(self) {
        let gone = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        gone.expect("remove what is foreign");
    }
}
