//! Numbers between the archive and the kernel: times as they are set, and bytes on disk as they are counted.

use rustix::fs::{Timespec, Timestamps};

use crate::tar::Time;

/// Both times for the kernel. Like containerd, the last access is never before the last change.
pub(super) fn timestamps(mtime: Time, atime: Option<Time>) -> Timestamps {
    let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    Timestamps { last_access: spec(atime.unwrap_or(mtime).max(mtime)), last_modification: spec(mtime) }
}

/// Bytes by `st_blocks`.
pub(super) fn bytes_on_disk(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or_default() * 512
}
