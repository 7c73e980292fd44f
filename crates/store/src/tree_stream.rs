//! [`write_tree`]: the tar stream of a layer that is a directory tree as overlayfs takes it. Whiteouts and opaque directories become the
//! entries by which a layer has them, so that the stream unpacks to an equal layer of any shape. The tree may be a mounted EROFS file.
//! Follows no symbolic link and enters no mount. The conversion of layers in another store calls it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use tar::{Builder, EntryType, Header};

use crate::disk::xattr::{XattrFile, is_of_overlayfs};
use crate::options::Cancelled;
use crate::tar::shown;
use crate::unpack::OPAQUE;

/// Longest name in the header of an entry; longer ones are in an extended header.
const NAME_BYTES: usize = 100;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MARK: &[u8] = b".wh..wh..opq";

/// Writes the stream of the tree in `directory`.
///
/// # Errors
/// A file could not be read, the stream could not be written, or the work was cancelled.
pub fn write_tree(directory: BorrowedFd<'_>, out: &mut dyn Write, cancelled: Cancelled<'_>) -> io::Result<()> {
    let device = rustix::fs::fstat(directory)?.st_dev;
    let mut stream = TreeStream { out: Builder::new(out), device, linked: HashMap::new(), cancelled };
    let root = rustix::fs::fstat(directory)?;
    stream.directory(&mut b"./".to_vec(), directory, &root)?;
    stream.out.finish()
}

struct TreeStream<'a> {
    out: Builder<&'a mut dyn Write>,
    device: u64,
    /// First path of each file with several names.
    linked: HashMap<u64, Vec<u8>>,
    cancelled: Cancelled<'a>,
}

impl TreeStream<'_> {
    /// Writes a directory and all that is below it. `path` ends with a slash, and is as before afterwards.
    fn directory(&mut self, path: &mut Vec<u8>, directory: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
        if stat.st_dev != self.device {
            return Err(named(path, &io::Error::other("it is another mount")));
        }
        let xattrs = XattrFile::Open(directory);
        self.entry(path, stat, EntryType::Directory, xattrs, &[], &mut io::empty())?;
        let opaque = xattrs.read(|name| OPAQUE.iter().any(|mark| name == mark.as_bytes()))?;
        if opaque.iter().any(|(_, value)| value == b"y") {
            self.empty(&[path.as_slice(), OPAQUE_MARK].concat())?;
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        let length = path.len();
        for name in names {
            if (self.cancelled)() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            path.extend_from_slice(&name);
            self.child(path, directory, &name)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn child(&mut self, path: &mut Vec<u8>, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| named(path, &e.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let opened = open(parent, name, OFlags::DIRECTORY).map_err(|error| named(path, &error))?;
            path.push(b'/');
            return self.directory(path, opened.as_fd(), &stat);
        }
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            let above = path.len() - name.len();
            return self.empty(&[&path[..above], WHITEOUT, name].concat());
        }
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&stat.st_ino) {
                let first = first.clone();
                return self.link(path, &first, &stat);
            }
            self.linked.insert(stat.st_ino, path.clone());
        }
        let xattrs = XattrFile::In(parent, name);
        match kind {
            FileType::RegularFile => {
                let mut file = File::from(open(parent, name, OFlags::empty()).map_err(|error| named(path, &error))?);
                self.entry(path, &stat, EntryType::Regular, xattrs, &[], &mut file)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(|e| named(path, &e.into()))?;
                self.entry(path, &stat, EntryType::Symlink, xattrs, target.as_bytes(), &mut io::empty())
            }
            FileType::CharacterDevice => self.entry(path, &stat, EntryType::Char, xattrs, &[], &mut io::empty()),
            FileType::BlockDevice => self.entry(path, &stat, EntryType::Block, xattrs, &[], &mut io::empty()),
            FileType::Fifo => self.entry(path, &stat, EntryType::Fifo, xattrs, &[], &mut io::empty()),
            // No layer has a socket.
            _ => Ok(()),
        }
    }

    fn entry(
        &mut self,
        path: &[u8],
        stat: &Stat,
        kind: EntryType,
        xattrs: XattrFile<'_>,
        target: &[u8],
        data: &mut dyn io::Read,
    ) -> io::Result<()> {
        let mut extended = Vec::new();
        for (name, value) in xattrs.read(|name| !is_of_overlayfs(name)).map_err(|e| named(path, &e.into()))? {
            let name = std::str::from_utf8(&name).map_err(|error| named(path, &io::Error::other(error)))?;
            extended.push((format!("SCHILY.xattr.{name}"), value));
        }
        if stat.st_mtime_nsec != 0 || stat.st_mtime < 0 {
            extended.push(("mtime".to_owned(), time(stat.st_mtime, stat.st_mtime_nsec).into_bytes()));
        }
        let mut header = header(path, kind, stat, &mut extended);
        if kind == EntryType::Regular {
            header.set_size(u64::try_from(stat.st_size).unwrap_or_default());
        }
        if !target.is_empty() {
            put_link(&mut header, target, &mut extended);
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(rustix::fs::major(stat.st_rdev))?;
            header.set_device_minor(rustix::fs::minor(stat.st_rdev))?;
        }
        self.put(header, &extended, data).map_err(|error| named(path, &error))
    }

    fn link(&mut self, path: &[u8], first: &[u8], stat: &Stat) -> io::Result<()> {
        let mut extended = Vec::new();
        let mut header = header(path, EntryType::Link, stat, &mut extended);
        put_link(&mut header, first, &mut extended);
        self.put(header, &extended, &mut io::empty()).map_err(|error| named(path, &error))
    }

    /// Writes an empty file, which stands for something that a tree has in another form.
    fn empty(&mut self, path: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        let mut extended = Vec::new();
        put_name(&mut header, path, &mut extended);
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0);
        header.set_size(0);
        self.put(header, &extended, &mut io::empty())
    }

    fn put(&mut self, mut header: Header, extended: &[(String, Vec<u8>)], data: &mut dyn io::Read) -> io::Result<()> {
        if !extended.is_empty() {
            self.out.append_pax_extensions(extended.iter().map(|(key, value)| (key.as_str(), value.as_slice())))?;
        }
        header.set_cksum();
        let size = header.size()?;
        let mut counted = io::Read::take(data, size);
        self.out.append(&header, &mut counted)?;
        match counted.limit() {
            0 => Ok(()),
            _ => Err(io::Error::other("it became shorter while it was read")),
        }
    }
}

fn header(path: &[u8], kind: EntryType, stat: &Stat, extended: &mut Vec<(String, Vec<u8>)>) -> Header {
    let mut header = Header::new_ustar();
    put_name(&mut header, path, extended);
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
    header.set_size(0);
    header
}

fn put_name(header: &mut Header, name: &[u8], extended: &mut Vec<(String, Vec<u8>)>) {
    let length = name.len().min(NAME_BYTES);
    header.as_mut_bytes()[..length].copy_from_slice(&name[..length]);
    if name.len() > NAME_BYTES {
        extended.push(("path".to_owned(), name.to_vec()));
    }
}

fn put_link(header: &mut Header, target: &[u8], extended: &mut Vec<(String, Vec<u8>)>) {
    const AT: usize = 157;
    let length = target.len().min(NAME_BYTES);
    header.as_mut_bytes()[AT..AT + length].copy_from_slice(&target[..length]);
    if target.len() > NAME_BYTES {
        extended.push(("linkpath".to_owned(), target.to_vec()));
    }
}

/// Returns seconds since 1970 as a decimal number. The nanoseconds of a time before 1970 count from the second below.
fn time(seconds: i64, nanos: u64) -> String {
    match (seconds < 0, nanos) {
        (true, 1..) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
        _ => format!("{seconds}.{nanos:09}"),
    }
}

fn open(parent: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn named(path: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{:?}: {error}", shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_from_the_second_below() {
        for (seconds, nanos, text) in
            [(0, 5, "0.000000005"), (-1, 500_000_000, "-0.500000000"), (-2, 0, "-2.000000000"), (-2, 1, "-1.999999999")]
        {
            assert_eq!(time(seconds, nanos), text);
        }
    }
}
