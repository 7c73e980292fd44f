//! [`link_tree`]: a second tree of the same files. Directories are created with the attributes of the first ones; everything else
//! is a link.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::implicit::attributes;
use crate::disk::beneath::Beneath;

/// Makes the directory `name` in `to`, with a link to every file that is in the tree `from`.
///
/// # Errors
/// A system call failed; what was made until then stays.
pub(crate) fn link_tree(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    rustix::fs::mkdirat(to, name, Mode::RWXU)?;
    let root = rustix::fs::openat(to, name, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let beneath = Beneath::default();
    let mut made: Vec<Vec<u8>> = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let (source, target) = (open(&beneath, from, &path)?, open(&beneath, root.as_fd(), &path)?);
        for entry in Dir::read_from(&source)? {
            let entry = entry?;
            let name: CString = entry.file_name().to_owned();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if is_directory(&source, &name, entry.file_type())? {
                rustix::fs::mkdirat(&target, name.as_c_str(), Mode::RWXU)?;
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                todo.push([&path, separator, name.to_bytes()].concat());
            } else {
                rustix::fs::linkat(&source, name.as_c_str(), &target, name.as_c_str(), AtFlags::empty())?;
            }
        }
        made.push(path);
    }
    // Last, and those further down first: a directory's time changes with what is made in it.
    for path in made.iter().rev() {
        let (source, target) = (open(&beneath, from, path)?, open(&beneath, root.as_fd(), path)?);
        let found = attributes(&source)?;
        for (name, value) in &found.xattrs {
            rustix::fs::fsetxattr(&target, name.as_slice(), value, XattrFlags::empty())?;
        }
        rustix::fs::fchown(
            &target,
            Some(rustix::fs::Uid::from_raw(found.uid)),
            Some(rustix::fs::Gid::from_raw(found.gid)),
        )?;
        rustix::fs::fchmod(&target, Mode::from_raw_mode(found.mode))?;
        rustix::fs::futimens(&target, &found.times)?;
    }
    Ok(())
}

fn open(beneath: &Beneath, top: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        return rustix::fs::openat(top, ".", flags, Mode::empty());
    }
    beneath.directory(top, path)
}

fn is_directory(parent: &OwnedFd, name: &CString, kind: FileType) -> Result<bool, Errno> {
    if kind != FileType::Unknown {
        return Ok(kind.is_dir());
    }
    let stat = rustix::fs::statat(parent, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn files_are_the_same_and_directories_are_alike() {
        let top = tempfile::tempdir().expect("a directory");
        let from = top.path().join("from");
        fs::create_dir_all(from.join("a/b")).expect("made");
        fs::write(from.join("a/b/file"), "text").expect("written");
        std::os::unix::fs::symlink("b/file", from.join("a/link")).expect("made");
        fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o2750)).expect("set");
        let time = fs::metadata("/").expect("there").modified().expect("a time");
        fs::File::open(from.join("a/b")).expect("opens").set_modified(time).expect("set");
        let open = |path| OwnedFd::from(fs::File::open(path).expect("opens"));
        link_tree(open(from.clone()).as_fd(), open(top.path().to_owned()).as_fd(), "to").expect("linked");
        let at = |tree: &str, path: &str| fs::symlink_metadata(top.path().join(tree).join(path)).expect("there");
        for path in ["a/b/file", "a/link"] {
            assert_eq!(at("from", path).ino(), at("to", path).ino(), "{path}");
        }
        for path in ["a", "a/b"] {
            let (one, other) = (at("from", path), at("to", path));
            assert_ne!(one.ino(), other.ino(), "{path}");
            assert_eq!((one.mode(), one.modified().ok()), (other.mode(), other.modified().ok()), "{path}");
        }
    }
}
