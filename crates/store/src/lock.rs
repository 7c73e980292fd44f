//! The lock file: one process has a store, and the file says which and where it answers. The lock is of the open file
//! (`flock`), so it ends with its holder, however that ends. Used by [`crate::open`] alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// What the holder writes into the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Someone else has it; what they wrote down, once they have.
    Held(Option<Holder>),
    Io(io::Error),
}

impl StoreLock {
    /// Takes the lock, or says who has it. Does not wait.
    pub(crate) fn take(path: &Path, holder: &Holder) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // A holder that cannot be read is still a holder.
                let read = (&mut file).take(64 * 1024).read_to_string(&mut text);
                return Err(LockError::Held(read.ok().and_then(|_| serde_json::from_str(&text).ok())));
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        let lock = Self { file };
        lock.write(holder).map_err(LockError::Io)?;
        Ok(lock)
    }

    /// Nobody must read the words of an earlier holder, so the file is emptied first. On a full disk the words may be
    /// missing; the lock holds all the same.
    fn write(&self, holder: &Holder) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.rewind()?;
        let mut text = serde_json::to_string(holder)?;
        text.push('\n');
        match file.write_all(text.as_bytes()) {
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                tracing::warn!("the disk is full: the lock file does not name its holder");
                Ok(())
            }
            done => done,
        }
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::debug!(%error, "the lock file could not be emptied");
        }
    }
}
