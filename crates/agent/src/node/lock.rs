//! [`PodsLock`]: one process runs pods from a root, and the file names it. The lock belongs to the open file (`flock`), so it
//! ends with its holder, however that ends. It lasts a moment longer while the kernel is still cleaning up after the process, or
//! while a program that the process was starting has a copy of the file; a holder that has ended is therefore waited for. The
//! store of the same root has its own lock: another process may serve it. Taken by `imagelet run`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::FileLock;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, test_kill_process};

/// The file in the root.
const NAME: &str = "pods.lock";

/// Time for which the lock of an ended process may last, and the pause between attempts in that time.
const GONE_SOON: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct PodsLock {
    _file: FileLock<File>,
}

/// Reason for which this process cannot run the pods of a root.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A process that runs has the lock.
    #[error(
        "{holder} runs the pods of {}: put manifests where it looks for them, or use another --root and another runtime",
        root.display()
    )]
    Held {
        /// `process PID`, or `another process` where the file names none.
        holder: String,
        /// Root whose pods the process runs.
        root: PathBuf,
    },
    /// The process that took the lock has ended, and the lock is still held after 5 seconds.
    #[error(
        "process {pid} ran the pods of {} and has ended, but its lock on {NAME} is still held: by a program that it started, or by a \
         process that cannot be seen from here",
        root.display()
    )]
    HeldAfter {
        /// Process id that the lock file names.
        pid: u32,
        /// Root whose pods the process ran.
        root: PathBuf,
    },
    /// The root cannot be made, or its lock file cannot be opened or locked.
    #[error("lock {}", path.display())]
    Io {
        /// Path of the lock file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl PodsLock {
    /// Takes the lock of a root, and creates a missing root for its owner alone. Does not wait for a running process, and waits up
    /// to 5 seconds for one that has ended.
    pub async fn take(root: &Path) -> Result<Self, LockError> {
        Self::take_within(root, GONE_SOON).await
    }

    async fn take_within(root: &Path, patience: Duration) -> Result<Self, LockError> {
        let begin = tokio::time::Instant::now();
        loop {
            let pid = match Self::attempt(root)? {
                Attempt::Taken(lock) => return Ok(lock),
                Attempt::Held(pid) => pid,
            };
            let holder = match pid {
                Some(pid) if !is_running(pid) => {
                    if begin.elapsed() >= patience {
                        return Err(LockError::HeldAfter { pid, root: root.to_owned() });
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Some(pid) => format!("process {pid}"),
                None => "another process".to_owned(),
            };
            return Err(LockError::Held { holder, root: root.to_owned() });
        }
    }

    fn attempt(root: &Path) -> Result<Attempt, LockError> {
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
                return Ok(Attempt::Held(text.trim().parse().ok()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The process id is for messages only; a full disk does not prevent pods from running.
        let named = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = named {
            tracing::debug!(%error, "the lock does not name its holder");
        }
        Ok(Attempt::Taken(Self { _file: FileLock::new(file) }))
    }
}

/// An attempt to take the lock.
enum Attempt {
    Taken(PodsLock),
    /// Another process holds the lock, with the process id in the file.
    Held(Option<u32>),
}

/// Returns true if there is such a process, and it has not ended.
fn is_running(pid: u32) -> bool {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if !id.is_some_and(|id| !matches!(test_kill_process(id), Err(rustix::io::Errno::SRCH))) {
        return false;
    }
    // One that has ended stays in the table of processes until its parent has asked for it. The name, in brackets, may hold
    // anything; the state follows it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("a/root");
        (directory, root)
    }

    #[tokio::test]
    async fn a_second_lock_names_the_first_process() {
        let (_directory, root) = root();
        let first = PodsLock::take(&root).await.expect("taken");
        let error = PodsLock::take(&root).await.expect_err("held").to_string();
        assert!(error.starts_with(&format!("process {} runs the pods", std::process::id())), "{error}");
        drop(first);
        PodsLock::take(&root).await.expect("free again");
    }

    /// A number that no process has: the largest one is below it.
    const NO_PROCESS: u32 = 1 << 22;

    #[tokio::test]
    async fn a_lock_that_outlives_its_holder_is_waited_for() {
        let (_directory, root) = root();
        let left = PodsLock::take(&root).await.expect("taken");
        std::fs::write(root.join(NAME), format!("{NO_PROCESS}\n")).expect("written");
        let error = PodsLock::take_within(&root, PAUSE).await.expect_err("held").to_string();
        let start = format!("process {NO_PROCESS} ran the pods of {} and has ended, but its lock", root.display());
        assert!(error.starts_with(&start), "{error}");
        let taken = PodsLock::take_within(&root, Duration::from_secs(60));
        let ends = async {
            tokio::task::yield_now().await;
            drop(left);
        };
        let (taken, ()) = tokio::join!(taken, ends);
        taken.expect("it is free when the last copy is closed");
    }

    #[test]
    fn processes_that_run() {
        assert!(is_running(std::process::id()));
        assert!(!is_running(NO_PROCESS) && !is_running(0) && !is_running(u32::MAX));
    }
}
