//! The reserve: a file of real blocks that is given up when the disk is full, so that the database can still write the
//! transaction of a removal. Deleting must never need free space. Knows nothing of the database; [`crate::records::backend`]
//! calls [`Reserve::give_up`] when a write finds no space, commits call [`Reserve::ensure`] first.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::is_disk_full;
use base::lock::Mutex;
use base::units;
use rustix::fs::{FallocateFlags, Mode, OFlags};

/// Bytes that the records of an image need in addition to its documents: the pages that redb copies.
pub(crate) const RECORDS_ROOM: u64 = 1 << 20;

/// The pre-allocated file. One per open store.
#[derive(Debug)]
pub(crate) struct Reserve {
    bytes: u64,
    path: PathBuf,
    /// Guards the file's length: giving up and refilling must not overlap. `None` until it could be made.
    file: Mutex<Option<File>>,
    /// Lets writes of the database fail.
    #[cfg(test)]
    pub(crate) fail: std::sync::atomic::AtomicBool,
    /// How often the database was synced.
    #[cfg(test)]
    pub(crate) syncs: std::sync::atomic::AtomicU64,
}

impl Reserve {
    /// Opens the file, without filling it. Where it is not there and the disk has not even an inode for it, it is made
    /// later.
    pub(crate) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = match open_file(path) {
            Ok(file) => Some(file),
            Err(error) if is_disk_full(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            bytes,
            path: path.to_owned(),
            file: Mutex::new(file),
            #[cfg(test)]
            fail: std::sync::atomic::AtomicBool::new(false),
            #[cfg(test)]
            syncs: std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// Makes the reserve whole.
    ///
    /// # Errors
    /// The disk has not that much space.
    pub(crate) fn ensure(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        let file = match &mut *file {
            Some(file) => file,
            missing => missing.insert(open_file(&self.path)?),
        };
        let metadata = file.metadata()?;
        // A file system that compresses or copies on write may hold fewer blocks than were asked for: length decides there.
        if metadata.len() == self.bytes && metadata.blocks() > 0 || self.bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => {}
            // The call is not supported: write zeros instead.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => fill(file, self.bytes)?,
            Err(error) => {
                // Half a reserve would be taken for a whole one.
                file.set_len(0)?;
                return Err(error.into());
            }
        }
        if metadata.len() > self.bytes {
            file.set_len(self.bytes)?;
        }
        Ok(())
    }

    /// Makes sure that besides the reserve so many bytes are free.
    ///
    /// # Errors
    /// They are not.
    pub(crate) fn ensure_room(&self, bytes: u64) -> io::Result<()> {
        self.ensure()?;
        let stat = self.stat()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < bytes {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{} are needed for the records, {} are free", units::bytes(bytes), units::bytes(free)),
            ));
        }
        Ok(())
    }

    /// Returns how many bytes can still be written in addition to what the reserve lacks, or `None` if the file system reports no
    /// size.
    pub(crate) fn room(&self) -> io::Result<Option<u64>> {
        let stat = self.stat()?;
        // Some file systems have no size at all, for example a tmpfs without a limit.
        if stat.f_blocks == 0 {
            return Ok(None);
        }
        let file = self.file.lock();
        let has = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
        let lacking = self.bytes.saturating_sub(has);
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize).saturating_sub(lacking)))
    }

    /// Gives the blocks back to the file system. Returns whether there were any.
    pub(crate) fn give_up(&self) -> io::Result<bool> {
        let mut held = self.file.lock();
        let Some(file) = &*held else { return Ok(false) };
        if file.metadata()?.len() == 0 {
            return Ok(false);
        }
        match file.set_len(0) {
            // A journalling file system hands freed blocks out again only after the journal's commit.
            Ok(()) => file.sync_all()?,
            // Where even that is written elsewhere first, a quota may let nothing be done with a file but take it away.
            Err(error) if is_disk_full(&error) => {
                std::fs::remove_file(&self.path)?;
                *held = None;
                File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()?;
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn stat(&self) -> io::Result<rustix::fs::StatVfs> {
        Ok(rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path))?)
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn fill(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let block = vec![0_u8; 64 * 1024];
    let mut at = 0;
    while at < bytes {
        let wanted = usize::try_from(bytes - at).unwrap_or(block.len()).min(block.len());
        if let Err(error) = file.write_all_at(&block[..wanted], at) {
            file.set_len(0)?;
            return Err(error);
        }
        at += wanted as u64;
    }
    Ok(())
}
