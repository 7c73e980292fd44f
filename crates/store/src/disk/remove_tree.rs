//! Deletes directory trees by file descriptor: never follows a symbolic link, never crosses a mount, copes with
//! directories of any mode. Splits big trees over a few threads. Knows nothing of layers; removal and sweep call it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use base::lock::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Deeper than this, a directory is moved up to the top before it is emptied, so that neither the stack nor the number
/// of open files grows with the depth of a tree.
const MAX_DEPTH: usize = 48;

/// How many trees are listed at the same time. Of each a few directories are open.
const AT_ONCE: usize = 64;

/// Deletes `name` in `parent`, whatever it is. Absent is fine.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    remove_trees(parent, std::slice::from_ref(&name.to_owned()))
}

/// Deletes several names in `parent`. Continues after a failure, and reports the first one.
pub(crate) fn remove_trees(parent: BorrowedFd<'_>, names: &[CString]) -> io::Result<()> {
    names.chunks(AT_ONCE).map(|names| remove_some(parent, names)).fold(Ok(()), io::Result::and)
}

fn remove_some(parent: BorrowedFd<'_>, names: &[CString]) -> io::Result<()> {
    let run = Run { top: parent, moved: AtomicUsize::new(0), more: Mutex::new(Vec::new()) };
    let mut first_error = None;
    let mut note = |result: io::Result<()>| {
        if let Err(error) = result {
            first_error.get_or_insert(error);
        }
    };
    // The first two levels give the pieces of work.
    let mut pieces = Vec::new();
    for name in names {
        note(run.split(parent, name, 2, &mut pieces));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4).min(pieces.len());
    if threads > 1 {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let work = || {
                    while let Some((directory, name)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = run.remove(directory.as_fd(), name, 0) {
                            results.lock().push(error);
                        }
                    }
                };
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    // Names that no thread has handled remain, and are handled below.
                    break;
                }
            }
        });
        for error in results.into_inner() {
            note(Err(error));
        }
    }
    drop(pieces);
    // Remaining names, and directories that were moved up because they were deep.
    for name in names {
        note(run.remove(parent, name, 0));
    }
    loop {
        let next = run.more.lock().pop();
        let Some(name) = next else { break };
        note(run.remove(parent, &name, 0));
    }
    first_error.map_or(Ok(()), Err)
}

/// A directory and a name in it.
type Subtree = (std::sync::Arc<OwnedFd>, CString);

struct Run<'a> {
    /// Where deep directories are moved to.
    top: BorrowedFd<'a>,
    moved: AtomicUsize,
    more: Mutex<Vec<CString>>,
}

impl Run<'_> {
    /// Collects the directories `levels` below `name`.
    fn split(&self, parent: BorrowedFd<'_>, name: &CStr, levels: usize, pieces: &mut Vec<Subtree>) -> io::Result<()> {
        let directory = match open_directory(parent, name) {
            Ok(directory) => std::sync::Arc::new(directory),
            // Not there, or no directory: the last step sees to it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for entry in Dir::read_from(&*directory)? {
            let entry = entry?;
            let child = entry.file_name();
            if is_dots(child) || entry.file_type() != FileType::Directory {
                continue;
            }
            if levels > 1 {
                self.split(directory.as_fd(), child, levels - 1, pieces)?;
            } else {
                pieces.push((std::sync::Arc::clone(&directory), child.to_owned()));
            }
        }
        Ok(())
    }

    fn remove(&self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        let directory = match open_directory(parent, name) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            // A file or a symbolic link.
            Err(Errno::NOTDIR | Errno::LOOP) => return absent_is_fine(unlink(parent, name)),
            Err(error) => return Err(error.into()),
        };
        if depth >= MAX_DEPTH {
            drop(directory);
            return self.move_up(parent, name);
        }
        // Some file systems skip entries when other entries are removed during the listing: list again until nothing is left.
        loop {
            let mut seen = false;
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let child = entry.file_name();
                if is_dots(child) {
                    continue;
                }
                seen = true;
                match entry.file_type() {
                    FileType::Directory | FileType::Unknown => self.remove(directory.as_fd(), child, depth + 1)?,
                    _ => absent_is_fine(unlink(directory.as_fd(), child))?,
                }
            }
            if !seen {
                break;
            }
        }
        drop(directory);
        absent_is_fine(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
    }

    fn move_up(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            let number = self.moved.fetch_add(1, Ordering::Relaxed);
            let new = CString::new(format!("deep-{}-{number}", std::process::id())).expect("no zero byte in it");
            match rustix::fs::renameat_with(parent, name, self.top, new.as_c_str(), rustix::fs::RenameFlags::NOREPLACE)
            {
                Ok(()) => {
                    self.more.lock().push(new);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn absent_is_fine(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(parent, name, AtFlags::empty())
}

/// Opens a directory for listing and emptying: no link at the end, no mount on it. An ordinary user first gives
/// themselves the right to it where the layer has taken that away.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let directory = match open_confined(parent, name) {
        Err(Errno::ACCESS) => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                return Err(Errno::ACCESS);
            }
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            open_confined(parent, name)?
        }
        opened => opened?,
    };
    if !rustix::process::geteuid().is_root() {
        let stat = rustix::fs::fstat(&directory)?;
        if stat.st_mode & 0o700 != 0o700 {
            rustix::fs::fchmod(&directory, Mode::RWXU)?;
        }
    }
    Ok(directory)
}

fn open_confined(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
        // An old kernel, or a filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            if rustix::fs::fstat(&directory)?.st_dev != rustix::fs::fstat(parent)?.st_dev {
                return Err(Errno::XDEV);
            }
            Ok(directory)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn remove(parent: &Path, name: &str) -> io::Result<()> {
        let parent = fs::File::open(parent)?;
        remove_tree(parent.as_fd(), &CString::new(name).expect("no zero byte"))
    }

    #[test]
    fn removes_every_kind_and_follows_no_link() {
        let top = tempfile::tempdir().expect("tempdir");
        let outside = top.path().join("outside");
        fs::create_dir(&outside).expect("create");
        fs::write(outside.join("kept"), "x").expect("write");
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c/d")).expect("create");
        for at in ["f", "a/f", "a/b/f", "a/b/c/d/f"] {
            fs::write(tree.join(at), "x").expect("write");
        }
        for at in ["l", "a/l", "a/b/c/l"] {
            symlink(&outside, tree.join(at)).expect("link");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("a/b/fifo"), Mode::RWXU).expect("fifo");
        remove(top.path(), "tree").expect("removes");
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn a_link_instead_of_a_tree_is_only_unlinked() {
        let top = tempfile::tempdir().expect("tempdir");
        fs::create_dir(top.path().join("kept")).expect("create");
        symlink("kept", top.path().join("link")).expect("link");
        remove(top.path(), "link").expect("removes");
        assert!(top.path().join("kept").exists());
        assert!(fs::symlink_metadata(top.path().join("link")).is_err());
    }

    #[test]
    fn absent_is_fine() {
        let top = tempfile::tempdir().expect("tempdir");
        remove(top.path(), "nothing").expect("nothing to do");
    }

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let top = tempfile::tempdir().expect("tempdir");
        // 3000 directories deep: longer than any path string could be, and more than the usual number of open files.
        let mut at = OwnedFd::from(fs::File::open(top.path()).expect("open"));
        for name in std::iter::once("tree").chain(std::iter::repeat_n("directory", 3000)) {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).expect("create");
            at = rustix::fs::openat(&at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("open");
        }
        drop(at);
        remove(top.path(), "tree").expect("removes");
        assert_eq!(fs::read_dir(top.path()).expect("list").count(), 0);
    }

    #[test]
    fn directories_without_rights_are_no_obstacle() {
        let top = tempfile::tempdir().expect("tempdir");
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("closed/inner")).expect("create");
        fs::write(tree.join("closed/inner/f"), "x").expect("write");
        for at in ["closed/inner", "closed", ""] {
            fs::set_permissions(tree.join(at), fs::Permissions::from_mode(0o000)).expect("chmod");
        }
        remove(top.path(), "tree").expect("removes");
        assert!(!tree.exists());
    }

    #[test]
    fn many_trees_with_many_files() {
        let top = tempfile::tempdir().expect("tempdir");
        let mut names = Vec::new();
        for tree in 0..5 {
            for directory in 0..20 {
                let path = top.path().join(format!("tree-{tree}/d{directory}/e"));
                fs::create_dir_all(&path).expect("create");
                for file in 0..20 {
                    fs::write(path.join(file.to_string()), "x").expect("write");
                }
            }
            names.push(CString::new(format!("tree-{tree}")).expect("no zero byte"));
        }
        let parent = fs::File::open(top.path()).expect("open");
        remove_trees(parent.as_fd(), &names).expect("removes");
        assert_eq!(fs::read_dir(top.path()).expect("list").count(), 0);
    }
}
