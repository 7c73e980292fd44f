//! Removes directory trees by descriptor: follows no link; stops at every mount, also at one of the same file system,
//! because its content does not belong to the tree; copes with trees of any depth, because containers make them. Called
//! when volumes are taken down and when a volume's files were replaced.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::walk::mount_id;

/// Deeper than this, a directory is moved up before it is emptied, so that neither the stack nor the number of open
/// files grows with the depth of a tree.
const MOST_DEEP: usize = 48;

/// Takes `name` in `parent` away, whatever it is. Absent is fine. Goes on after a failure, and answers the first one.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let name = CString::new(super::place::one_name(name)?)?;
    let mount = mount_id(parent)?;
    let top = match open(parent, &name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return absent_is_fine(unlink(parent, &name)),
        Err(error) => return Err(error.into()),
    };
    let run = TreeRemoval { top: top.as_fd(), mount, moved: AtomicUsize::new(0) };
    run.empty(top.as_fd(), 0)?;
    absent_is_fine(rustix::fs::unlinkat(parent, &name, AtFlags::REMOVEDIR))
}

struct TreeRemoval<'a> {
    /// Directory to which deep directories are moved.
    top: BorrowedFd<'a>,
    /// The only mount in which something is removed.
    mount: u64,
    moved: AtomicUsize,
}

impl TreeRemoval<'_> {
    fn empty(&self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if mount_id(directory)? != self.mount {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is still mounted here"));
        }
        // Some file systems skip entries when others vanish during the listing: list until nothing is left.
        loop {
            let (mut seen, mut first_error) = (false, None);
            for entry in Dir::read_from(directory)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                seen = true;
                if let Err(error) = self.entry(directory, name, entry.file_type(), depth) {
                    first_error.get_or_insert(error);
                }
            }
            match first_error {
                Some(error) => return Err(error),
                None if !seen => return Ok(()),
                None => {}
            }
        }
    }

    fn entry(&self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType, depth: usize) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", name.to_string_lossy()));
        if !matches!(kind, FileType::Directory | FileType::Unknown) {
            return absent_is_fine(unlink(directory, name)).map_err(named);
        }
        let below = match open(directory, name) {
            Ok(below) => below,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => return absent_is_fine(unlink(directory, name)).map_err(named),
            Err(error) => return Err(named(error.into())),
        };
        if depth >= MOST_DEEP {
            return self.move_up(directory, name).map_err(named);
        }
        self.empty(below.as_fd(), depth + 1).map_err(named)?;
        absent_is_fine(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)).map_err(named)
    }

    fn move_up(&self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            let new = format!("..deep-{}", self.moved.fetch_add(1, Ordering::Relaxed));
            match rustix::fs::renameat_with(directory, name, self.top, &new, rustix::fs::RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn open(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(parent, name, AtFlags::empty())
}

fn absent_is_fine(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
