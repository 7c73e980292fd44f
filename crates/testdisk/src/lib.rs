//! A block device for tests, whose every write can be seen, refused, and undone: a FUSE file of our own behind a loop device.
//! Knows file systems by the names of the programs that make them, and nothing of what is kept on them. For tests alone.
//!
//! ```no_run
//! # use imagelet_testdisk as testdisk;
//! // Once in the crate root of a test binary: the process that serves the file is this binary again.
//! testdisk::serve!();
//!
//! # fn main() -> std::io::Result<()> {
//! let disk = testdisk::Disk::new(testdisk::Kind::Ext4, 64 << 20)?;
//! let mounted = disk.mount()?;          // in no namespace; unmounted with the value, and with the process
//! std::fs::write(mounted.path().join("a"), "b")?;
//! disk.fail(testdisk::Fault::of(testdisk::Op::Write, testdisk::EIO).after(10))?;
//! assert!(disk.counts()?.failed == 0);
//! disk.heal()?;
//! # Ok(()) }
//! ```
//!
//! Recording: [`Disk::record`] discards earlier events, and returns the current content of the disk ([`Image`]); [`Disk::note`]
//! puts a remark between the writes ([`note`] does it from another process); [`Disk::recorded`] returns the events since then, in
//! order ([`Event`]). An [`Image`] applies events ([`Image::apply`]), is copied, and mounted. The kernel sends each write of the
//! file system as it is issued (no cache is in between), and each flush as an fsync, after the writes that it has to make
//! durable.
//!
//! Nothing is left behind by a test that fails or is killed: mounts are in no namespace, loop devices clear themselves, and
//! the serving process ends when its file is no longer used. It is a process of its own because one that waits for a disk
//! which it has to serve itself cannot even be killed.

mod disk;
mod fault;
mod image;
mod mounted;
mod record;
mod server;

pub use disk::{Counts, Disk, note};
pub use fault::{EIO, ENOSPC, Fault, Op};
pub use image::{Image, SECTOR};
pub use mounted::{Kind, Mounted};
pub use record::Event;
pub use server::{SERVER_TEST, serve_as_asked};

/// Makes this test binary able to serve disks: to be called once, in its crate root.
#[macro_export]
macro_rules! serve {
    () => {
        /// The process that serves a disk.
        #[test]
        #[ignore = "a process of other tests, which start it: scripts/test.sh"]
        fn testdisk_server() {
            $crate::serve_as_asked();
        }
    };
}

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
serve!();
