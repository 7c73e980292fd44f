//! The database's file: plain reads and writes, and one more try with the reserve's blocks when the disk is full.
//! Takes no lock of its own: the store's lock file has been taken before. Used by [`crate::db`] alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

use crate::reserve::{Reserve, is_full};
use crate::young::Youth;

/// A file that can fall back on the reserve.
#[derive(Debug)]
pub(crate) struct ReservedFile {
    file: File,
    reserve: Arc<Reserve>,
    youth: Arc<Youth>,
    /// Set by the first operation that fails; redb refuses everything from then on.
    failed: Arc<AtomicBool>,
}

impl ReservedFile {
    pub(crate) fn open(
        path: &Path,
        reserve: Arc<Reserve>,
        youth: Arc<Youth>,
        failed: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok(Self { file, reserve, youth, failed })
    }

    /// Does it; when the disk is full, gives up the reserve and does it once more.
    fn with_reserve(&self, act: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.note(match act() {
            Err(error) if is_full(&error) => self.reserve.give_up().and_then(|given| {
                if given {
                    tracing::warn!("the disk is full: the store's reserve is given up");
                }
                act()
            }),
            done => done,
        })
    }

    #[cfg(test)]
    fn check_hook(&self) -> io::Result<()> {
        if self.reserve.fail.load(Ordering::Relaxed) {
            return self.note(Err(io::Error::other("the test says so")));
        }
        Ok(())
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }
}

impl StorageBackend for ReservedFile {
    fn len(&self) -> io::Result<u64> {
        self.note(self.file.metadata().map(|metadata| metadata.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.note(self.file.read_exact_at(out, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_reserve(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.youth.is_careless() {
            return Ok(());
        }
        self.with_reserve(|| self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.check_hook()?;
        self.with_reserve(|| self.file.write_all_at(data, offset))
    }
}
