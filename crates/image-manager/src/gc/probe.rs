//! [`measure`]: asks the system how full a file system is. The one place of collection that does; the binary hands it in as
//! [`DiskProbe`](super::DiskProbe), tests hand in something else.

use std::io;
use std::path::Path;

use super::disk::DiskSpace;

/// How full the file system is on which `path` lies. What is reserved for root counts as taken, as for the kubelet.
///
/// # Errors
/// The system does not say.
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
}
