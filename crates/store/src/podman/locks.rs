//! The locks of an additional image store (`layers.lock`, `images.lock`): locks of `fcntl`, which podman takes for reading while it
//! reads, and as long as it makes a container; and the token in them, which a writer changes. Knows nothing of what they guard.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci::Digest;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// A lock file. It stays open: with any descriptor of the file that this process closes, its lock would end.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(&path)?;
        Ok(Self { path, file })
    }

    /// Returns true if other processes find another file by this name, or none.
    fn is_displaced(&self) -> bool {
        let same =
            |there: &std::fs::Metadata, own: &std::fs::Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
        !matches!((std::fs::metadata(&self.path), self.file.metadata()), (Ok(there), Ok(own)) if same(&there, &own))
    }

    fn try_lock(&self) -> io::Result<bool> {
        match fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn unlock(&self) {
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(%error, path = %self.path.display(), "cannot unlock");
        }
    }

    /// Notifies readers that their data is stale. The token depends on the previous one and on the new content.
    fn touch(&self, content: &[u8]) -> io::Result<()> {
        let mut before = [0; 64];
        let length = self.file.read_at(&mut before, 0)?;
        let token = Digest::sha256(&[&before[..length], Digest::sha256(content).hex().as_bytes()].concat());
        self.file.write_all_at(token.hex().as_bytes(), 0)
    }
}

/// Both locks, in the order in which podman takes them.
#[derive(Debug)]
pub(super) struct Locks {
    layers: LockFile,
    images: LockFile,
}

impl Locks {
    pub(super) fn open(layers: &Path, images: &Path) -> io::Result<Self> {
        Ok(Self {
            layers: LockFile::open(layers.join("layers.lock"))?,
            images: LockFile::open(images.join("images.lock"))?,
        })
    }

    /// Returns true if other processes would lock other files.
    pub(super) fn are_displaced(&self) -> bool {
        self.layers.is_displaced() || self.images.is_displaced()
    }

    /// Takes both locks for writing, if no reader holds them within `attempts`.
    pub(super) fn lock(&self, attempts: u32) -> io::Result<bool> {
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            if self.layers.try_lock()? {
                if self.images.try_lock()? {
                    return Ok(true);
                }
                self.layers.unlock();
            }
        }
        Ok(false)
    }

    pub(super) fn unlock(&self) {
        self.images.unlock();
        self.layers.unlock();
    }

    pub(super) fn touch_layers(&self, content: &[u8]) -> io::Result<()> {
        self.layers.touch(content)
    }

    pub(super) fn touch_images(&self, content: &[u8]) -> io::Result<()> {
        self.images.touch(content)
    }
}
