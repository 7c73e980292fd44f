//! The database's file: plain reads and writes, and one more try with the reserve's blocks when the disk is full.
//! Takes no lock of its own: the store's lock file has been taken before. Used by [`crate::records::db`] alone.
//!
//! redb marks its file when it opens it, and cleans it up when it closes it: seven syncs for a process that only reads an image.
//! So redb's writes before the first transaction are kept aside, and so are its writes at the end, after [`ReservedFile::end`]. A
//! file that is left in that state counts as one that was not closed: every transaction carries the state of the allocator with
//! it (quick repair), by which the next open finds at once which pages are free. Only that open's marks are written to the disk,
//! with the first transaction after it, and mostly they are present already.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::is_disk_full;
use base::lock::{Mutex, MutexGuard};
use redb::StorageBackend;

use crate::disk::reserve::Reserve;
use crate::disk::young::Youth;

/// A file that can fall back on the reserve. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct ReservedFile(Arc<DatabaseFile>);

#[derive(Debug)]
struct DatabaseFile {
    file: File,
    /// The file system has become so: nothing can be written to this file.
    read_only: bool,
    reserve: Arc<Reserve>,
    youth: Arc<Youth>,
    /// Set by the first operation that fails; redb refuses everything from then on.
    failed: AtomicBool,
    /// Set when a sync failed: written bytes may not be on the disk although the page cache takes them to be.
    doubtful: Arc<AtomicBool>,
    /// True if nothing is kept aside.
    through: AtomicBool,
    /// Guards what redb has written and the file has not, and the change to writing through.
    aside: Mutex<Option<DeferredActs>>,
}

/// Writes, lengths and syncs of redb, in their order.
#[derive(Debug, Default)]
struct DeferredActs(Vec<DeferredAct>);

#[derive(Debug)]
enum DeferredAct {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl DeferredActs {
    fn length(&self) -> Option<u64> {
        self.0.iter().rev().find_map(|act| if let DeferredAct::Length(length) = act { Some(*length) } else { None })
    }

    /// Overlays the bytes that were read from `offset` with the writes that were kept aside.
    fn lay_over(&self, offset: u64, bytes: &mut [u8]) {
        for act in &self.0 {
            let DeferredAct::Write(at, written) = act else { continue };
            let begin = offset.max(*at);
            let end = (offset + bytes.len() as u64).min(at + written.len() as u64);
            if begin < end {
                let part = |from: u64| to_usize(begin - from)..to_usize(end - from);
                bytes[part(offset)].copy_from_slice(&written[part(*at)]);
            }
        }
    }
}

/// A place within a buffer.
fn to_usize(place: u64) -> usize {
    usize::try_from(place).expect("a buffer is not larger than the memory")
}

impl ReservedFile {
    /// Opens or creates it. Nothing is written until [`ReservedFile::begin`].
    pub(crate) fn open(
        path: &Path,
        reserve: Arc<Reserve>,
        youth: Arc<Youth>,
        doubtful: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let writable = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let (file, read_only) = match writable {
            // An existing file can be read all the same; a missing one cannot be created, for that reason.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => match File::open(path) {
                Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Err(error),
                file => (file?, true),
            },
            file => (file?, false),
        };
        Ok(Self(Arc::new(DatabaseFile {
            file,
            read_only,
            reserve,
            youth,
            failed: AtomicBool::new(false),
            doubtful,
            through: AtomicBool::new(false),
            aside: Mutex::new(Some(DeferredActs::default())),
        })))
    }

    /// Returns true if nothing can be written, because the file system was read-only when the file was opened.
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Returns true if nothing has failed.
    pub(crate) fn is_usable(&self) -> bool {
        !self.0.failed.load(Ordering::Acquire)
    }

    /// From now on it counts as failed.
    pub(crate) fn give_up(&self) {
        self.0.failed.store(true, Ordering::Release);
    }

    /// From now on everything is written. The writes that were kept aside are done first, in their order, unless they change
    /// nothing.
    pub(crate) fn begin(&self) -> io::Result<()> {
        if self.is_through() {
            return Ok(());
        }
        if self.0.read_only {
            return self.note(Err(rustix::io::Errno::ROFS.into()));
        }
        self.heal()?;
        let mut aside = self.aside();
        if let Some(kept) = &*aside
            && self.note(self.changes_something(kept))?
        {
            for act in &kept.0 {
                match act {
                    DeferredAct::Write(offset, bytes) => self.put(*offset, bytes)?,
                    DeferredAct::Length(length) => self.with_reserve(|| self.0.file.set_len(*length))?,
                    DeferredAct::Sync => self.sync()?,
                }
            }
        }
        *aside = None;
        self.0.through.store(true, Ordering::Release);
        Ok(())
    }

    /// From now on nothing is written any more: the file stays as the last transaction left it.
    pub(crate) fn end(&self) {
        let mut aside = self.aside();
        aside.get_or_insert_default();
        self.0.through.store(false, Ordering::Release);
    }

    fn is_through(&self) -> bool {
        self.0.through.load(Ordering::Acquire)
    }

    fn aside(&self) -> MutexGuard<'_, Option<DeferredActs>> {
        // Each act is whole before it is put there.
        self.0.aside.lock()
    }

    /// Keeps an act aside, or says that it has to be done.
    fn keep(&self, act: impl FnOnce() -> DeferredAct) -> bool {
        if self.is_through() {
            return false;
        }
        self.aside().as_mut().map(|aside| aside.0.push(act())).is_some()
    }

    /// Returns true if the file would be another one with this.
    fn changes_something(&self, kept: &DeferredActs) -> io::Result<bool> {
        let length = self.0.file.metadata()?.len();
        if kept.length().is_some_and(|wanted| wanted != length) {
            return Ok(true);
        }
        for act in &kept.0 {
            let DeferredAct::Write(offset, bytes) = act else { continue };
            if offset + bytes.len() as u64 > length {
                return Ok(true);
            }
            let mut there = vec![0; bytes.len()];
            self.0.file.read_exact_at(&mut there, *offset)?;
            let mut wanted = there.clone();
            kept.lay_over(*offset, &mut wanted);
            if there != wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does it; when the disk is full, gives up the reserve and does it once more.
    fn with_reserve(&self, act: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.note(match act() {
            Err(error) if is_disk_full(&error) => self.0.reserve.give_up().and_then(|given| {
                if given {
                    tracing::warn!("the disk is full: the store's reserve is given up");
                }
                act()
            }),
            done => done,
        })
    }

    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.check_hook()?;
        self.with_reserve(|| self.0.file.write_all_at(data, offset))
    }

    fn sync(&self) -> io::Result<()> {
        if self.0.youth.is_careless() {
            return Ok(());
        }
        #[cfg(test)]
        self.0.reserve.syncs.fetch_add(1, Ordering::Relaxed);
        self.note(match self.0.file.sync_data() {
            Err(error) => {
                self.0.doubtful.store(true, Ordering::Release);
                let given = is_disk_full(&error).then(|| self.0.reserve.give_up());
                match given {
                    Some(Ok(true)) => {
                        tracing::warn!("the disk is full: the store's reserve is given up");
                        // A second sync alone would have nothing to write, and say that all is well.
                        self.write_again()
                    }
                    Some(Err(error)) => Err(error),
                    Some(Ok(false)) | None => Err(error),
                }
            }
            done => done,
        })
    }

    /// Where a sync of the file has failed, the kernel takes for written what it could not write: all of it is written once
    /// more.
    pub(crate) fn heal(&self) -> io::Result<()> {
        if self.0.doubtful.load(Ordering::Acquire) { self.note(self.write_again()) } else { Ok(()) }
    }

    /// Writes the whole file over itself, and syncs it.
    fn write_again(&self) -> io::Result<()> {
        let length = self.0.file.metadata()?.len();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < length {
            let part = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            self.0.file.read_exact_at(&mut buffer[..part], at)?;
            self.0.file.write_all_at(&buffer[..part], at)?;
            at += part as u64;
        }
        self.0.file.sync_data()?;
        self.0.doubtful.store(false, Ordering::Release);
        Ok(())
    }

    #[cfg(test)]
    fn check_hook(&self) -> io::Result<()> {
        if self.0.reserve.fail.load(Ordering::Relaxed) {
            return self.note(Err(io::Error::other("the test says so")));
        }
        Ok(())
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.0.failed.store(true, Ordering::Release);
        }
        result
    }
}

impl StorageBackend for ReservedFile {
    fn len(&self) -> io::Result<u64> {
        let aside = if self.is_through() { None } else { self.aside().as_ref().and_then(DeferredActs::length) };
        match aside {
            Some(length) => Ok(length),
            None => self.note(self.0.file.metadata().map(|metadata| metadata.len())),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.is_through() {
            return self.note(self.0.file.read_exact_at(out, offset));
        }
        let aside = self.aside();
        let Some(kept) = &*aside else { return self.note(self.0.file.read_exact_at(out, offset)) };
        // A file that is to become longer has zeros there.
        let mut read = 0;
        while read < out.len() {
            match self.note(self.0.file.read_at(&mut out[read..], offset + read as u64))? {
                0 if kept.length().is_some_and(|length| offset + out.len() as u64 <= length) => {
                    out[read..].fill(0);
                    break;
                }
                0 => return self.note(Err(io::ErrorKind::UnexpectedEof.into())),
                more => read += more,
            }
        }
        kept.lay_over(offset, out);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.keep(|| DeferredAct::Length(len)) {
            return Ok(());
        }
        self.with_reserve(|| self.0.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.keep(|| DeferredAct::Sync) {
            return Ok(());
        }
        self.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.keep(|| DeferredAct::Write(offset, data.to_vec())) {
            return Ok(());
        }
        self.put(offset, data)
    }
}
