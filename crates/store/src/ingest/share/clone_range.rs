//! A row of blocks that two files have in common, by the file system's doing (`FICLONERANGE`). Called by [`super::erofs`] alone. Unsafe
//! code for one request that has no safe wrapper: `copy_file_range` would copy where it cannot share, and not say so.
#![expect(unsafe_code, reason = "one ioctl request that rustix has no function for, which is argued for")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `struct file_clone_range` (linux/fs.h).
#[repr(C)]
struct Range {
    from: i64,
    from_at: u64,
    length: u64,
    to_at: u64,
}

const _: () = assert!(size_of::<Range>() == 32, "as the kernel has it, without padding");

/// `FICLONERANGE`.
const REQUEST: Opcode = opcode::write::<Range>(0x94, 13);

/// Lets a range of a file have the blocks of another one's.
pub(super) fn clone_range(to: &File, to_at: u64, from: &File, from_at: u64, length: u64) -> io::Result<()> {
    let range = Range { from: from.as_raw_fd().into(), from_at, length, to_at };
    // SAFETY: the request reads one `struct file_clone_range`, which `Range` is, field by field and without padding.
    let setter = unsafe { Setter::<REQUEST, Range>::new(range) };
    // SAFETY: both descriptors are open meanwhile; the request writes no memory of ours.
    Ok(unsafe { ioctl(to, setter) }?)
}
