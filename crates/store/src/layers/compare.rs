//! Compares two trees of one layer: the one in the store, and a copy that was just made from the layer's stream without the
//! content of its files. Finds the first difference in what a stream says of a file apart from its bytes. Follows no link,
//! changes nothing. Called by [`crate::ingest::verify`].

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::disk::beneath::Beneath;
use crate::disk::layout::FS;
use crate::disk::xattr::XattrFile;
use crate::recipe;
use crate::tar::shown;
use crate::unpack::{DEFERRED, LABELS};

/// The side of a comparison that could not be read.
#[derive(Debug)]
pub(crate) enum NotCompared {
    /// The layer in the store could not be read.
    Layer(io::Error),
    /// The copy, which says nothing of the layer.
    Copy(io::Error),
}

impl From<io::Error> for NotCompared {
    fn from(error: io::Error) -> Self {
        Self::Layer(error)
    }
}

impl From<Errno> for NotCompared {
    fn from(error: Errno) -> Self {
        Self::Layer(error.into())
    }
}

pub(crate) fn of_copy(error: impl Into<io::Error>) -> NotCompared {
    NotCompared::Copy(error.into())
}

/// The first difference in words.
pub(crate) type Compared = Result<Option<String>, NotCompared>;

/// The first difference between two layer directories, in words. Directories of `implicit` got their attributes from
/// layers below: these are not compared.
pub(crate) fn difference(
    there: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    implicit: &[Vec<u8>],
    cancelled: &dyn Fn() -> bool,
) -> Compared {
    let implicit: BTreeSet<Vec<u8>> = implicit
        .iter()
        .map(|path| if path.is_empty() { FS.as_bytes().to_vec() } else { [FS.as_bytes(), b"/", path].concat() })
        .collect();
    let has_placeholders = stat(there, DEFERRED.as_bytes())?.is_some();
    let todo = vec![FS.as_bytes().to_vec()];
    let mut trees = Trees { there, copy, beneath: Beneath::default(), implicit, has_placeholders, todo };
    if let Some(what) = trees.named(&[], FS.as_bytes())? {
        return Ok(Some(what));
    }
    for name in [recipe::REPLACED, DEFERRED] {
        if let Some(what) = trees.named(&[], name.as_bytes())? {
            return Ok(Some(what));
        }
    }
    if stat(there, recipe::REPLACED.as_bytes())?.is_some() {
        trees.todo.push(recipe::REPLACED.as_bytes().to_vec());
    }
    while let Some(path) = trees.todo.pop() {
        if cancelled() {
            break;
        }
        if let Some(what) = trees.directory(&path)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

struct Trees<'a> {
    there: BorrowedFd<'a>,
    copy: BorrowedFd<'a>,
    beneath: Beneath,
    /// Directories whose attributes are those of the layers below.
    implicit: BTreeSet<Vec<u8>>,
    /// An ordinary user unpacked the layer: empty files stand for devices, and are of the time at which they were made.
    has_placeholders: bool,
    /// Directories that are present on both sides, and whose entries are yet to be compared.
    todo: Vec<Vec<u8>>,
}

impl Trees<'_> {
    fn directory(&mut self, path: &[u8]) -> Compared {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let there = self.beneath.open(self.there, path, flags)?;
        let copy = self.beneath.open(self.copy, path, flags).map_err(of_copy)?;
        let (names, wanted) = (names(&there)?, names(&copy).map_err(of_copy)?);
        if let Some(name) = names.difference(&wanted).next() {
            return Ok(Some(format!("{:?} is not of this layer", shown(&[path, b"/", name.to_bytes()].concat()))));
        }
        if let Some(name) = wanted.difference(&names).next() {
            return Ok(Some(format!("{:?} is gone", shown(&[path, b"/", name.to_bytes()].concat()))));
        }
        for name in &names {
            let child = [path, b"/", name.to_bytes()].concat();
            if let Some(what) = self.entry(there.as_fd(), copy.as_fd(), name.to_bytes(), &child)? {
                return Ok(Some(what));
            }
            let was = stat(copy.as_fd(), name.to_bytes()).map_err(of_copy)?;
            if was.is_some_and(|was| kind(&was) == FileType::Directory) {
                self.todo.push(child);
            }
        }
        if self.implicit.contains(path) || !path.starts_with(FS.as_bytes()) {
            return Ok(None);
        }
        let (is, was) = (rustix::fs::fstat(&there)?, rustix::fs::fstat(&copy).map_err(of_copy)?);
        Ok(other_time(&is, &was, path))
    }

    /// A name in the layer's own directory, which may be on neither side.
    fn named(&self, path: &[u8], name: &[u8]) -> Compared {
        let (there, copy) = (stat(self.there, name)?, stat(self.copy, name).map_err(of_copy)?);
        match (there.is_some(), copy.is_some()) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(format!("{:?} is not of this layer", shown(name)))),
            (false, true) => Ok(Some(format!("{:?} is gone", shown(name)))),
            (true, true) if name == FS.as_bytes() => self.entry(self.there, self.copy, name, &[path, name].concat()),
            // Our own files have no attributes that matter.
            (true, true) => {
                let length = |stat: Option<Stat>| stat.filter(|s| kind(s) == FileType::RegularFile).map(|s| s.st_size);
                Ok((length(there) != length(copy)).then(|| format!("{:?} is not what it was", shown(name))))
            }
        }
    }

    fn entry(&self, there: BorrowedFd<'_>, copy: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Compared {
        let (Some(is), Some(was)) = (stat(there, name)?, stat(copy, name).map_err(of_copy)?) else {
            return Ok(Some(format!("{:?} is gone", shown(path))));
        };
        let differs = |what: &str, is: String, was: String| {
            Ok(Some(format!("{what} of {:?} is {is} instead of {was}", shown(path))))
        };
        if kind(&is) != kind(&was) {
            return differs("the kind", format!("{:?}", kind(&is)), format!("{:?}", kind(&was)));
        }
        // A whiteout has no attributes of the layer's.
        if kind(&is) == FileType::CharacterDevice && (is.st_rdev, was.st_rdev) == (0, 0) {
            return Ok(None);
        }
        let is_directory = kind(&is) == FileType::Directory;
        if is_directory && self.implicit.contains(path) {
            return Ok(None);
        }
        if is.st_mode & 0o7777 != was.st_mode & 0o7777 {
            return differs("the mode", format!("{:o}", is.st_mode & 0o7777), format!("{:o}", was.st_mode & 0o7777));
        }
        if (is.st_uid, is.st_gid) != (was.st_uid, was.st_gid) {
            return differs(
                "the owner",
                format!("{}:{}", is.st_uid, is.st_gid),
                format!("{}:{}", was.st_uid, was.st_gid),
            );
        }
        // A file that an earlier version shared with other layers has more links than this layer gives it.
        let has_links =
            is.st_nlink >= was.st_nlink && (kind(&is) == FileType::RegularFile || is.st_nlink == was.st_nlink);
        if !is_directory && ((is.st_size, is.st_rdev) != (was.st_size, was.st_rdev) || !has_links) {
            let text =
                |stat: &Stat| format!("{} bytes, device {}, {} links", stat.st_size, stat.st_rdev, stat.st_nlink);
            return differs("the form", text(&is), text(&was));
        }
        // A directory's time says less than the changes in it, which are checked first.
        let is_placeholder = self.has_placeholders && is.st_size == 0 && is.st_mode & 0o7777 == 0o600;
        if !is_directory
            && !is_placeholder
            && let Some(what) = other_time(&is, &was, path)
        {
            return Ok(Some(what));
        }
        if kind(&is) == FileType::Symlink {
            let target = |fd| rustix::fs::readlinkat(fd, name, Vec::new());
            let (is, was) = (target(there)?, target(copy).map_err(of_copy)?);
            if is != was {
                return differs("the target", format!("{is:?}"), format!("{was:?}"));
            }
        }
        let (is, was) = (attributes(there, name)?, attributes(copy, name).map_err(of_copy)?);
        if let Some((name, _)) = is.symmetric_difference(&was).next() {
            return Ok(Some(format!("the attribute {:?} of {:?} is not what it was", shown(name), shown(path))));
        }
        Ok(None)
    }
}

fn other_time(is: &Stat, was: &Stat, path: &[u8]) -> Option<String> {
    let time = |stat: &Stat| format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
    let (is, was) = (time(is), time(was));
    (is != was).then(|| format!("the time of {:?} is {is} instead of {was}", shown(path)))
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn stat(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names(directory: &OwnedFd) -> io::Result<BTreeSet<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.insert(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Returns extended attributes by name and value, without those that the system itself adds to the ones of a layer.
fn attributes(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<BTreeSet<(Vec<u8>, Vec<u8>)>> {
    Ok(XattrFile::In(directory, name).read(|name| !LABELS.contains(&name))?.into_iter().collect())
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
