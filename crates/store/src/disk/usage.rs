//! The disk usage of files, and whether a file system has inodes left.

use std::path::Path;

use rustix::fs::{FileType, Stat};

/// Returns true if what the file system of this directory lacks is not bytes but inodes.
#[must_use]
pub fn is_out_of_inodes(directory: &Path) -> bool {
    // Some file systems make inodes as they go, and count none.
    rustix::fs::statvfs(directory).is_ok_and(|stat| stat.f_files > 0 && stat.f_favail == 0)
}

/// How often a file is inspected that seems to take less than its bytes.
const LOOKS: usize = 4;

/// Returns the bytes of a file on the disk, as the file system reports them. While ext4 allocates blocks for data that was only
/// in memory until then, it counts these nowhere for a moment; so a file that seems to have holes is inspected again, and the
/// highest result counts.
pub(crate) fn bytes_on_disk<E>(look: impl Fn() -> Result<Stat, E>) -> Result<u64, E> {
    let mut most = 0;
    for _ in 0..LOOKS {
        let stat = look()?;
        most = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512).max(most);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || most >= u64::try_from(stat.st_size).unwrap_or(0) {
            break;
        }
        std::thread::yield_now();
    }
    Ok(most)
}
