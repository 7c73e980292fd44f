//! The lock file: one process has a store, and the file names it and the socket on which it answers. The lock is of the open file
//! (`flock`), so it ends with its holder, in whatever way; a clean end also blanks the file, so that the next holder detects an
//! unclean one. Used by [`crate::store::open`] alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base::{FileLock, is_disk_full};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// Bytes of the file, unless a path is longer.
const LENGTH: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    /// The command that it runs, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// A digest of the settings by which it pulls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
    /// Layers with this number and greater ones were written since all of them were last known to be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<u64>,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: FileLock<File>,
    holder: Holder,
    /// The previous holder did not end cleanly, and its writes have not been checked yet.
    unclean: AtomicBool,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Someone else has it; what they wrote down, once they have.
    Held(Option<Holder>),
    Io(io::Error),
}

impl StoreLock {
    /// Takes the lock, or returns its holder. Does not wait.
    pub(crate) fn take(path: &Path, holder: Holder) -> Result<Self, LockError> {
        // A lock file that was deleted or replaced between the opening and the lock protects nothing.
        loop {
            let lock = Self::take_this(path, holder.clone())?;
            let (own, named) = (lock.file.metadata(), std::fs::metadata(path));
            let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
            match (own.map(identity), named.map(identity)) {
                (Ok(own), Ok(named)) if own == named => return Ok(lock),
                (Err(error), _) => return Err(LockError::Io(error)),
                (_, Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(LockError::Io(error)),
                _ => {}
            }
        }
    }

    fn take_this(path: &Path, mut holder: Holder) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        // Unreadable content is no name, but a holder all the same.
        let read = |file: &mut File| {
            let mut text = String::new();
            file.take(64 * 1024).read_to_string(&mut text).ok().and_then(|_| serde_json::from_str::<Holder>(&text).ok())
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(LockError::Held(read(&mut file))),
            Err(error) => return Err(LockError::Io(error.into())),
        }
        let mut file = FileLock::new(file);
        let unclean = !is_blank(&mut file).map_err(LockError::Io)?;
        if unclean {
            file.rewind().map_err(LockError::Io)?;
            holder.since = read(&mut file).and_then(|before| before.since);
        }
        let lock = Self { file, holder, unclean: AtomicBool::new(unclean) };
        lock.write(&lock.holder).map_err(LockError::Io)?;
        Ok(lock)
    }

    /// The first layer that a holder without a clean end may have written; 0 where that holder did not say. `None` after a
    /// clean end.
    pub(crate) fn unclean_since(&self) -> Option<u64> {
        self.unclean.load(Ordering::Acquire).then_some(self.holder.since.unwrap_or(0))
    }

    /// Makes what was written when the lock was taken outlive a stop of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self.file.sync_data() {
            Err(error) if is_disk_full(&error) => Ok(()),
            done => done,
        }
    }

    /// How many seconds ago the file at `path` was changed, by the file system's clock; 0 when that cannot be said.
    pub(crate) fn follows(&self, path: &Path) -> u64 {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let now = rustix::fs::Timestamps { last_access: now, last_modification: now };
        if rustix::fs::futimens(&*self.file, &now).is_err() {
            return 0;
        }
        let modified = |found: io::Result<std::fs::Metadata>| found.ok().and_then(|metadata| metadata.modified().ok());
        let (lock, other) = (modified(self.file.metadata()), modified(std::fs::metadata(path)));
        lock.zip(other).and_then(|(lock, other)| lock.duration_since(other).ok()).map_or(0, |age| age.as_secs())
    }

    /// Makes the next holder check the writes of this one, although it ends cleanly.
    pub(crate) fn note_unclean(&self) {
        self.unclean.store(true, Ordering::Release);
    }

    /// Notes, so that with `sync` it outlives a stop of the machine, that all layers below this number are good. After an unclean
    /// end they need no check any more.
    pub(crate) fn good_up_to(&self, next_layer: u64, sync: bool) -> io::Result<()> {
        self.write(&Holder { since: Some(next_layer), ..self.holder.clone() })?;
        if sync {
            self.sync()?;
        }
        self.unclean.store(false, Ordering::Release);
        Ok(())
    }

    /// Writes the holder over the text of the previous one, so that no reader gets that text. Where a file system writes
    /// elsewhere and is full, the text may be missing; the lock is held all the same.
    fn write(&self, holder: &Holder) -> io::Result<()> {
        let text = serde_json::to_string(holder)?;
        match self.put(&text) {
            Err(error) if is_disk_full(&error) => {
                tracing::warn!("the disk is full: the lock file does not name its holder");
                // A length needs no block, and zeros are no blanks: this is no clean end.
                match self.file.set_len(0).and_then(|()| self.file.set_len(1)) {
                    // Under some quotas not even that can be changed; what the last holder left stands there then.
                    Err(error) if is_disk_full(&error) => Ok(()),
                    done => done,
                }
            }
            done => done,
        }
    }

    /// Writes a text and blanks behind it, in one go. The file keeps its length, and so its block: a full disk has room for the
    /// name of the next holder.
    fn put(&self, text: &str) -> io::Result<()> {
        let length = LENGTH.max(text.len() + 1);
        self.file.write_all_at(format!("{text:length$}").as_bytes(), 0)?;
        self.file.set_len(length as u64)
    }
}

/// Returns true if a clean end left the file.
fn is_blank(file: &mut File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    file.take(64 * 1024).read_to_end(&mut bytes)?;
    Ok(bytes.iter().all(|byte| *byte == b' '))
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        if self.unclean_since().is_some() {
            // The next holder has to check what this one has not.
            return;
        }
        if let Err(error) = self.put("").or_else(|_| self.file.set_len(0)) {
            tracing::debug!(%error, "the lock file could not be emptied");
        }
    }
}
