//! Events of directories from the kernel: inotify, without waiting on a thread. Knows no file and no manifest. Called by
//! [`super::directory`].

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// A notice of the kernel.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) watch: i32,
    pub(super) flags: ReadFlags,
    /// To which entry of the directory; `None`: to the directory itself.
    pub(super) name: Option<OsString>,
}

/// An inotify instance.
pub(super) struct Inotify(AsyncFd<Arc<OwnedFd>>);

/// Adds watches; it may be taken to a thread that may block.
#[derive(Clone)]
pub(super) struct Watcher(Arc<OwnedFd>);

impl Inotify {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; an `OwnedFd` in an `Arc` is never replaced, nor closed before"
    )]
    pub(super) fn new() -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(AsyncFd::new(Arc::new(fd))?))
    }

    /// Returns a watcher for the thread that lists directories.
    pub(super) fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(self.0.get_ref()))
    }

    /// Waits for the next events, at least one. Events that arrive between two calls are not lost.
    pub(super) async fn next(&self) -> std::io::Result<Vec<Notice>> {
        loop {
            let mut guard = self.0.readable().await?;
            let notices = self.drain()?;
            // All events were read; later ones set the readiness again.
            guard.clear_ready();
            if !notices.is_empty() {
                return Ok(notices);
            }
        }
    }

    /// Returns all queued notices.
    pub(super) fn drain(&self) -> std::io::Result<Vec<Notice>> {
        let mut notices = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let fd = self.0.get_ref();
        let mut reader = inotify::Reader::new(fd.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => notices.push(Notice {
                    watch: event.wd(),
                    flags: event.events(),
                    name: event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
                }),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(notices),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Watcher {
    /// Hears of what happens in a directory. A directory that is watched already has the same number.
    pub(super) fn add(&self, directory: &Path) -> std::io::Result<i32> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(self.0.as_fd(), directory, flags)?)
    }

    /// Hears of it no longer.
    pub(super) fn remove(&self, watch: i32) {
        // The watch was removed with its directory, or is removed now.
        let _ = inotify::remove_watch(self.0.as_fd(), watch);
    }
}
