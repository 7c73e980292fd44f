//! [`PodsLock`]: one process runs pods from a root, and the file says which. The lock is of the open file (`flock`), so it
//! ends with its holder, however that ends. The store of the same root has a lock of its own: somebody else may serve it.
//! Taken by `imagelet run`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use base::FileLock;
use rustix::fs::FlockOperation;

use crate::exit::{Code, Failure, Outcome};

/// The file in the root.
const NAME: &str = "pods.lock";

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct PodsLock {
    _file: FileLock<File>,
}

impl PodsLock {
    /// Takes the lock of a root, which is made where it is missing, for its owner alone. Does not wait.
    pub(crate) fn take(root: &Path) -> Outcome<Self> {
        let failed = |error: &io::Error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let code = if denied { Code::NotPermitted } else { Code::Failed };
            Failure::caused(code, format!("lock {}", root.join(NAME).display()), error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|error| failed(&error))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(root.join(NAME)).map_err(|error| failed(&error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.take(64).read_to_string(&mut text);
                let holder = text
                    .trim()
                    .parse::<u32>()
                    .map_or_else(|_| "another process".to_owned(), |p| format!("process {p}"));
                let root = root.display();
                return Err(Failure::failed(format!(
                    "{holder} runs the pods of {root}: put manifests where it looks for them, or use another --root and \
                     another runtime"
                )));
            }
            Err(error) => return Err(failed(&error.into())),
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
        let failure = PodsLock::take(&root).expect_err("held");
        assert!(
            failure.lines()[0].starts_with(&format!("process {} runs the pods", std::process::id())),
            "{failure:?}"
        );
        drop(first);
        PodsLock::take(&root).expect("free again");
    }
}
