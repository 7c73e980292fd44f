//! Shared by the tests of this crate: scripts that are run as plugins and helpers, and waiting for a state. Not part
//! of the product.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes an executable shell script. (That another thread's new process may still hold it open for writing is what
/// [`crate::process`] copes with.)
pub(crate) fn script(directory: &Path, name: &str, body: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

/// Returns true if a process of that number runs; one that has ended and was not yet waited for does not.
pub(crate) fn alive(number: i32) -> bool {
    fs::read_to_string(format!("/proc/{number}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

/// Awaits the work; fails the test if it hangs. Guards against a hang only, and says nothing about speed.
pub(crate) async fn watchdog<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("the test hangs")
}

/// Waits for a condition that another process fulfils.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come about in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
