//! [`measure`] and [`boot_clock`]: ask the system how full a file system is, and for how long it is up. The one place of
//! collection that asks; tests hand in something else.

use std::io;
use std::path::Path;

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::disk::DiskSpace;
use super::node_time::{Boot, BootClock};

/// Returns the usage of the file system of `path`. Space that is reserved for root counts as used, as in the kubelet.
///
/// # Errors
/// The error of the system call.
pub fn measure(path: &Path) -> io::Result<DiskSpace> {
    let of = rustix::fs::statvfs(path)?;
    let device = rustix::fs::stat(path)?.st_dev;
    Ok(DiskSpace {
        capacity: of.f_blocks.saturating_mul(of.f_frsize),
        available: of.f_bavail.saturating_mul(of.f_frsize),
        inodes: of.f_files,
        inodes_free: of.f_favail,
        device,
    })
}

/// Tells the life of this node, sleep included. The kernel names each.
pub(super) fn boot_clock() -> BootClock {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let id: Option<Box<str>> = id.map(|id| id.trim().into());
    Arc::new(move || {
        let up = clock_gettime(ClockId::Boottime);
        let seconds = Duration::from_secs(u64::try_from(up.tv_sec).ok()?);
        let id = id.clone()?;
        Some(Boot { id, up: seconds + Duration::from_nanos(u64::try_from(up.tv_nsec).ok()?) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lies_on_something() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let space = measure(directory.path()).expect("it is there");
        assert!(space.capacity > 0 && space.available <= space.capacity, "{space:?}");
        assert!(measure(&directory.path().join("nothing")).is_err());
    }

    #[test]
    fn a_life_has_a_name_and_only_grows() {
        let clock = boot_clock();
        let (first, second) = (clock().expect("Linux tells"), clock().expect("Linux tells"));
        assert_eq!(first.id, second.id);
        assert!(first.up <= second.up && !first.id.is_empty());
    }
}
