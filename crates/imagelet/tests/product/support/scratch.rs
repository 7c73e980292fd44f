//! A directory for one test, and the end of everything that belongs to it: mounts, loop devices, containers. A test that was
//! killed cannot clean up; the next one that makes a directory does it in its place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use super::process::{signal, tool};

const PREFIX: &str = "product-";

/// Where the library of network plugins notes what they answered, in files `NETWORK-SANDBOX-INTERFACE`.
pub(crate) const NETWORK_RESULTS: &str = "/var/lib/cni/results";

/// A directory for one test. At its end everything that is mounted below is unmounted, and it is removed.
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
    /// Locked as long as the test lives: an unlocked directory is left over. Closed after the directory is removed.
    _mine: File,
}

impl Scratch {
    #[track_caller]
    pub(crate) fn new() -> Self {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(parent).expect("create the target's directory for tests");
        // One after the other: a directory that was just made and is not locked yet would be taken for a leftover.
        let turn = File::create(parent.join("product.lock")).expect("create a lock");
        flock(&turn, FlockOperation::LockExclusive).expect("lock");
        clear_up_after_the_killed(parent);
        let directory =
            tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).expect("create a directory for the test");
        let mine = try_lock(directory.path()).expect("nobody else knows the directory");
        Self { directory, _mine: mine }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The cgroup for containers that run in this scratch.
    pub(crate) fn cgroup(&self) -> String {
        cgroup(self.path())
    }

    /// The name of the network of pods that run in this scratch.
    pub(crate) fn network(&self) -> String {
        self.cgroup().trim_start_matches('/').to_owned()
    }

    /// A path below it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A new directory below it.
    #[track_caller]
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).expect("create a directory for the test");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            super::secrets::search_below(&self.join("store"));
            super::secrets::search_stores(self.path());
            super::secrets::search_written_files();
        }
        // Directories made by an ordinary user's test may have mode 000; root can enter them all the same.
        empty(self.path());
    }
}

/// The lock of a scratch; `None` while its test lives. A file of its own: the program locks directories.
fn try_lock(directory: &Path) -> Option<File> {
    let file = File::create(directory.join(".mine")).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

fn clear_up_after_the_killed(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        if let Some(_lock) = try_lock(&entry.path()) {
            empty(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Ends the processes of a scratch, unmounts its mounts, and detaches its loop devices. A step that fails is left to the next
/// test that cleans up.
fn empty(directory: &Path) {
    end_containers(directory);
    // CNI plugins record elsewhere which address they gave to which container; after the network namespace that record is stale.
    let noted = format!("{}-", cgroup(directory).trim_start_matches('/'));
    for entry in fs::read_dir(NETWORK_RESULTS).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(&noted) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below: Vec<&str> =
        mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|m| Path::new(m).starts_with(directory)).collect();
    for mount in below.iter().rev() {
        let _ = rustix::mount::unmount(*mount, rustix::mount::UnmountFlags::DETACH);
    }
    // A loop device is detached with its mount, except one that was made and never mounted.
    for device in loop_devices_below(directory) {
        let _ = tool("losetup").arg("-d").arg(Path::new("/dev").join(device)).output();
    }
}

/// Names of the loop devices that show files at or below a path. The kernel clears a device at its last close: after an unmount, and
/// while other processes scan the devices.
pub(crate) fn loop_devices_below(path: &Path) -> Vec<String> {
    let shown = |device: &fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim_end()).starts_with(path)
    };
    let all = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    all.filter(shown).map(|device| device.file_name().to_string_lossy().into_owned()).collect()
}

/// Named after the directory: no other one has its name.
fn cgroup(directory: &Path) -> String {
    format!("/imagelet-{}", directory.file_name().unwrap_or_default().display())
}

/// Kills the processes in the cgroup of a scratch, and their shims, and removes the cgroup.
fn end_containers(directory: &Path) {
    let (cgroup, directory) = (cgroup(directory), format!("{}/", directory.display()));
    let below = format!(":{cgroup}/");
    for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let read = |file: &str| fs::read(process.path().join(file)).unwrap_or_default();
        let (line, cgroups) = (read("cmdline"), read("cgroup"));
        let (line, cgroups) = (String::from_utf8_lossy(&line), String::from_utf8_lossy(&cgroups));
        let is_shim = line.split('\0').next().is_some_and(|program| program.contains("containerd-shim"));
        if cgroups.contains(&below) || is_shim && line.contains(&directory) {
            signal(pid, Signal::KILL);
        }
    }
    // Version 2 has one hierarchy, version 1 one for each controller.
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let until = Instant::now() + Duration::from_secs(2);
    for hierarchy in controllers.chain([root.to_path_buf()]) {
        let path = hierarchy.join(cgroup.trim_start_matches('/'));
        remove_cgroup(&path);
        // Killed processes take a moment to end.
        while path.exists() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(5));
            remove_cgroup(&path);
        }
    }
}

fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}
