//! [`PodsLock`]: one process runs pods from a root, and the file says which. The lock is of the open file (`flock`), so it
//! ends with its holder, however that ends. The store of the same root has a lock of its own: somebody else may serve it.
//! Taken by `imagelet run`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base::FileLock;
use rustix::fs::FlockOperation;

/// The file in the root.
const NAME: &str = "pods.lock";

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct PodsLock {
    _file: FileLock<File>,
}

/// Why the pods of a root are not for this process.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "{holder} runs the pods of {}: put manifests where it looks for them, or use another --root and another runtime",
        root.display()
    )]
    Held { holder: String, root: PathBuf },
    #[error("lock {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl PodsLock {
    /// Takes the lock of a root, which is made where it is missing, for its owner alone. Does not wait.
    pub fn take(root: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: root.join(NAME), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(root.join(NAME)).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.take(64).read_to_string(&mut text);
                let holder = text
                    .trim()
                    .parse::<u32>()
                    .map_or_else(|_| "another process".to_owned(), |p| format!("process {p}"));
                return Err(LockError::Held { holder, root: root.to_owned() });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // Who it is helps people; a full disk does not keep pods from running.
        let named = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = named {
            tracing::debug!(%error, "the lock does not name its holder");
        }
        Ok(Self { _file: FileLock::new(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_told_who_was_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("a/root");
        let first = PodsLock::take(&root).expect("taken");
        let error = PodsLock::take(&root).expect_err("held").to_string();
        assert!(error.starts_with(&format!("process {} runs the pods", std::process::id())), "{error}");
        drop(first);
        PodsLock::take(&root).expect("free again");
    }
}
