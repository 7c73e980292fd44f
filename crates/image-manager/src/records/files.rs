//! [`Directory`]: the files of one directory, read and replaced as wholes. It does not interpret their content. Pull records
//! and the state of garbage collection are stored in such directories.
//!
//! A file appears by rename, after its content is on disk, and the directory is written out after it: a reader sees
//! the old file or the new one, also after a power cut. Several processes may work in one directory: they change it
//! under an advisory lock of the directory, and find each other's changes by its [`DirectoryStamp`].
//!
//! All functions block and are called on threads that may block, except for [`Directory::stamp`] and
//! [`Directory::read_now`], which never wait for a disk. The system's coarse clock is not read for the time of day: it is
//! the clock by which the file system stamps its changes, and shows whether two changes could have the same stamp.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use base::FileLock;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::time::{ClockId, clock_gettime};

use super::RecordsError;
use super::format::{DRAFT, is_draft, is_record};

/// No record is nearly as big: a hundred secrets are 20 kB.
const MAX_SIZE: u64 = 16 << 20;
/// How often another name is tried for a draft.
const TRIES: usize = 8;
/// How files are opened that are only read: no link is followed, and nothing waits for the other end of a pipe.
const TO_READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// Seconds and nanoseconds since 1970, by the clock of the file system.
type Moment = (i64, u64);

/// Purpose for which a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Other processes may change it at the same time.
    Shared,
    /// The same, but writes are left in the page cache, so that after a stop of the machine (not of the process) files may be
    /// empty or missing.
    SharedUnsynced,
    /// Nothing is written; where it is missing, it is an empty one.
    Reading,
}

/// When a directory last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryStamp {
    modified: Moment,
    changed: Moment,
    settled: bool,
}

impl DirectoryStamp {
    /// Stamp of a missing directory.
    const MISSING: Self = Self { modified: (0, 0), changed: (0, 0), settled: true };

    /// Returns true if a later stamp shows that nothing has changed since this one.
    pub(crate) fn still_is(&self, later: &Self) -> bool {
        self.settled && (self.modified, self.changed) == (later.modified, later.changed)
    }
}

/// Which file it is, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    size: u64,
    modified: Moment,
    changed: Moment,
    settled: bool,
}

impl FileStamp {
    /// Stamp of a file that was read without a stat. It equals no later stamp.
    pub(super) const UNKNOWN: Self = Self { inode: 0, size: 0, modified: (0, 0), changed: (0, 0), settled: false };

    fn of(stat: &Stat, now: Moment) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed,
            settled: settled(changed, now),
        }
    }

    /// Returns true if a later stamp can show that the file is the same.
    fn tells(&self) -> bool {
        self.settled
    }

    /// Returns true if a later stamp shows that the file is the same.
    fn still_is(&self, later: &Self) -> bool {
        self.settled && Self { settled: true, ..*later } == *self
    }

    /// Seconds since 1970 at which the content was written or affirmed.
    pub(crate) fn modified_second(&self) -> i64 {
        self.modified.0
    }
}

/// A file that was read. As long as this is held, no other file can be taken for it.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: FileStamp,
    file: OwnedFd,
}

impl Content {
    /// The open file.
    pub(crate) fn into_file(self) -> OwnedFd {
        self.file
    }
}

/// Result of reading a file without waiting.
#[derive(Debug)]
pub(crate) enum Now {
    /// The file is the one that was seen before.
    Unchanged,
    /// The content is so many bytes of the buffer.
    Is(usize, FileStamp),
    /// The content, which the buffer has no room for.
    Long(Vec<u8>, FileStamp),
    /// No such file.
    Absent,
    /// Not known without waiting for the disk, or an error that a blocking read reports.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// `None`: it is missing, and counts as empty.
    fd: Option<OwnedFd>,
    used: Use,
}

/// The lock of a directory or of a file in it.
pub(crate) type Lock = FileLock<OwnedFd>;

/// A file on disk under a name that no process reads. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    directory: &'a Directory,
    name: String,
    /// `None`: it has its right name.
    file: Option<OwnedFd>,
}

impl Directory {
    /// Opens the directory to read and to change it.
    pub(crate) fn open(path: PathBuf) -> Result<Self, RecordsError> {
        Self::open_for(path, Use::Shared)
    }

    /// Opens the directory. Unless it is to be read only, makes it where it is missing, and removes drafts that killed
    /// processes left.
    pub(crate) fn open_for(path: PathBuf, used: Use) -> Result<Self, RecordsError> {
        let fail = |operation| RecordsError::io(operation, &path);
        if used == Use::Reading {
            let fd = match open_directory(&path) {
                Ok(fd) => Some(fd),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(fail("open directory")(errno.into())),
            };
            return Ok(Self { path, fd, used });
        }
        let missing = !path.is_dir();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(fail("make directory"))?;
        if missing
            && used == Use::Shared
            && let Some(parent) = path.parent()
        {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(fail("make durable"))?;
        }
        let fd = open_directory(&path).map_err(|errno| fail("open directory")(errno.into()))?;
        let mode = fs::fstat(&fd).map_err(|errno| fail("look at")(errno.into()))?.st_mode;
        if mode & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "others could read this directory; they no longer can");
            fs::fchmod(&fd, Mode::RWXU).map_err(|errno| fail("restrict the mode of")(errno.into()))?;
        }
        let directory = Self { path, fd: Some(fd), used };
        directory.remove_left_drafts().map_err(directory.fail("clear drafts of"))?;
        Ok(directory)
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn fail(&self, operation: &'static str) -> impl FnOnce(io::Error) -> RecordsError {
        RecordsError::io(operation, &self.path)
    }

    /// The directory, to change something in it.
    fn to_change(&self) -> io::Result<&OwnedFd> {
        match &self.fd {
            Some(fd) if self.used != Use::Reading => Ok(fd),
            _ => Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it was opened to be read")),
        }
    }

    /// Returns true if nothing is written to the directory.
    pub(super) fn is_for_reading(&self) -> bool {
        self.used == Use::Reading
    }

    /// When it last changed.
    pub(crate) fn stamp(&self) -> Result<DirectoryStamp, RecordsError> {
        let Some(fd) = &self.fd else { return Ok(DirectoryStamp::MISSING) };
        let now = now();
        let stat = fs::fstat(fd).map_err(|errno| self.fail("look at directory")(errno.into()))?;
        if stat.st_nlink == 0 {
            return Err(self.fail("use directory")(io::Error::new(io::ErrorKind::NotFound, "it was removed")));
        }
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Ok(DirectoryStamp { modified, changed, settled: settled(modified.max(changed), now) })
    }

    /// The names of all records, in no order.
    pub(crate) fn names(&self) -> Result<Vec<String>, RecordsError> {
        self.list(is_record).map_err(self.fail("list"))
    }

    fn list(&self, wanted: fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let Some(fd) = &self.fd else { return Ok(names) };
        for entry in fs::Dir::read_from(fd)? {
            let entry = entry?;
            if entry.file_type() == FileType::Directory {
                continue;
            }
            if let Ok(name) = entry.file_name().to_str()
                && wanted(name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Content>, RecordsError> {
        self.read_file(name).map_err(RecordsError::io("read", self.path_of(name)))
    }

    fn read_file(&self, name: &str) -> io::Result<Option<Content>> {
        let Some(fd) = &self.fd else { return Ok(None) };
        let now = now();
        let file = match fs::openat(fd, name, TO_READ, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let stat = fs::fstat(&file)?;
        let stamp = checked(&stat, now)?;
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
        let file = File::from(file);
        (&file).take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
        Ok(Some(Content { bytes, stamp, file: file.into() }))
    }

    /// Reads a file if that needs no disk. `seen`: a stamp of it, so that it need not be read again where it is the same.
    pub(crate) fn read_now(&self, name: &str, seen: Option<&FileStamp>, buffer: &mut [u8]) -> Now {
        let Some(fd) = &self.fd else { return Now::Absent };
        let now = now();
        let file = match fs::openat2(fd, name, TO_READ, Mode::empty(), ResolveFlags::CACHED) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Now::Absent,
            Err(_) => return Now::Unknown,
        };
        let read = |buffer: &mut [u8]| {
            rustix::io::preadv2(&file, &mut [IoSliceMut::new(buffer)], 0, ReadWriteFlags::NOWAIT).ok()
        };
        if seen.is_none() {
            // Only a regular file can be read from a place in it. What fills the buffer may go on.
            match read(buffer) {
                Some(size) if size < buffer.len() => return Now::Is(size, FileStamp::UNKNOWN),
                Some(_) => {}
                None => return Now::Unknown,
            }
        }
        let Ok(stat) = fs::fstat(&file) else { return Now::Unknown };
        let Ok(stamp) = checked(&stat, now) else { return Now::Unknown };
        if seen.is_some_and(|seen| seen.tells() && seen.still_is(&stamp)) {
            return Now::Unchanged;
        }
        match usize::try_from(stamp.size) {
            Ok(size) if size <= buffer.len() => match read(&mut buffer[..size]) {
                Some(read) if read == size => Now::Is(size, stamp),
                _ => Now::Unknown,
            },
            Ok(size) => {
                let mut bytes = vec![0; size];
                match read(&mut bytes) {
                    Some(read) if read == size => Now::Long(bytes, stamp),
                    _ => Now::Unknown,
                }
            }
            Err(_) => Now::Unknown,
        }
    }

    /// Waits until no other process or thread changes the directory.
    pub(crate) fn lock(&self) -> Result<Lock, RecordsError> {
        let lock = || -> io::Result<OwnedFd> {
            // A file description of its own, so that threads of one process exclude each other as well.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = fs::openat(self.to_change()?, c".", flags, Mode::empty())?;
            rustix::io::retry_on_intr(|| fs::flock(&fd, FlockOperation::LockExclusive))?;
            Ok(fd)
        };
        lock().map(Lock::new).map_err(self.fail("lock"))
    }

    /// Writes a file that is to become `name`, down to the disk.
    pub(crate) fn draft(&self, name: &str, bytes: &[u8]) -> Result<Draft<'_>, RecordsError> {
        let draft = self.write_draft(name, bytes).map_err(RecordsError::io("write", self.path_of(name)))?;
        if let Some(file) = &draft.file {
            self.sync_file(name, file)?;
        }
        Ok(draft)
    }

    /// Like [`Directory::draft`], but left in the page cache: [`Directory::sync_file`] and [`Directory::sync`] may follow later.
    pub(super) fn loose_draft(&self, name: &str, bytes: &[u8]) -> Result<Draft<'_>, RecordsError> {
        self.write_draft(name, bytes).map_err(RecordsError::io("write", self.path_of(name)))
    }

    fn write_draft(&self, name: &str, bytes: &[u8]) -> io::Result<Draft<'_>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = self.to_change()?;
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{name}.{}-{number}{DRAFT}", std::process::id());
            let file = match fs::openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                // Another process with our number, in another namespace.
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let draft = Draft { directory: self, name, file: Some(file) };
            let file = draft.file.as_ref().expect("it was just put there");
            // The lock shows to a process that removes leftovers that the draft is in use.
            fs::flock(file, FlockOperation::NonBlockingLockShared)?;
            let mut rest = bytes;
            while !rest.is_empty() {
                let written = rustix::io::retry_on_intr(|| rustix::io::write(file, rest))?;
                rest = &rest[written..];
            }
            return Ok(draft);
        }
        Err(Errno::EXIST.into())
    }

    /// Removes a file. Returns true if there was one.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, RecordsError> {
        let removed = self.to_change().and_then(|fd| match fs::unlinkat(fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        });
        removed.map_err(RecordsError::io("remove", self.path_of(name)))
    }

    /// Returns true if `name` is still the file that was read. The caller holds the lock.
    pub(crate) fn is_still(&self, name: &str, content: Option<&Content>) -> Result<bool, RecordsError> {
        let stat = self.to_change().and_then(|fd| match fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        });
        let stat = stat.map_err(RecordsError::io("look at", self.path_of(name)))?;
        // Comparing the inode is enough, since the file that was read is held open.
        Ok(stat.map(|stat| stat.st_ino) == content.map(|content| content.stamp.inode))
    }

    /// Notes on the file itself that what is in it was affirmed at `second`.
    pub(crate) fn touch(&self, name: &str, second: i64) -> Result<(), RecordsError> {
        let time = rustix::fs::Timespec { tv_sec: second, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let touch = |fd| Ok(fs::utimensat(fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?);
        self.to_change().and_then(touch).map_err(RecordsError::io("touch", self.path_of(name)))
    }

    /// Makes the content of a file durable, unless nothing in this directory is.
    pub(super) fn sync_file(&self, name: &str, file: &OwnedFd) -> Result<(), RecordsError> {
        if self.used == Use::SharedUnsynced {
            return Ok(());
        }
        fs::fsync(file).map_err(|errno| RecordsError::io("make durable", self.path_of(name))(errno.into()))
    }

    /// Makes names durable, unless nothing in this directory is.
    pub(crate) fn sync(&self) -> Result<(), RecordsError> {
        if self.used == Use::SharedUnsynced {
            return Ok(());
        }
        self.to_change().and_then(|fd| Ok(fs::fsync(fd)?)).map_err(self.fail("make durable"))
    }

    fn remove_left_drafts(&self) -> io::Result<()> {
        let directory = self.to_change()?;
        for name in self.list(is_draft)? {
            let Ok(file) = fs::openat(directory, &name, TO_READ, Mode::empty()) else { continue };
            if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                tracing::debug!(path = %self.path_of(&name).display(), "a draft that a killed process left is removed");
                match fs::unlinkat(directory, &name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// Renames the draft to its final name. The caller holds the lock, and syncs the directory when that is released.
    /// `None`: another process removed the draft.
    pub(crate) fn place(mut self, name: &str) -> Result<Option<OwnedFd>, RecordsError> {
        let directory = self.directory;
        let fail = RecordsError::io("rename", directory.path_of(name));
        let fd = match directory.to_change() {
            Ok(fd) => fd,
            Err(error) => return Err(fail(error)),
        };
        match fs::renameat(fd, &self.name, fd, name) {
            Ok(()) => Ok(self.file.take()),
            Err(Errno::NOENT) => {
                self.file = None;
                Ok(None)
            }
            Err(errno) => Err(fail(errno.into())),
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.file.is_some()
            && let Err(error) = self.directory.remove(&self.name)
        {
            tracing::warn!(%error, "a draft stays behind");
        }
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The stamp of a file that was just opened.
pub(crate) fn stamp_of(file: &OwnedFd) -> io::Result<FileStamp> {
    let now = now();
    Ok(FileStamp::of(&fs::fstat(file)?, now))
}

/// Takes a shared lock on a file. Never waits: an exclusive lock is only taken while holding the directory's lock.
pub(crate) fn share(file: OwnedFd) -> io::Result<Lock> {
    fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(Lock::new(file))
}

/// Returns true if no process holds the lock of [`share`].
pub(crate) fn is_unshared(file: OwnedFd) -> io::Result<bool> {
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            drop(Lock::new(file));
            Ok(true)
        }
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn checked(stat: &Stat, now: Moment) -> io::Result<FileStamp> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no regular file"));
    }
    let stamp = FileStamp::of(stat, now);
    if stamp.size > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is far too big"));
    }
    Ok(stamp)
}

/// The clock of file stamps.
fn now() -> Moment {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    (time.tv_sec, u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns true if any change after `now` bears another stamp than `changed`.
fn settled(changed: Moment, now: Moment) -> bool {
    if changed.1 == 0 {
        // The file system may know full seconds only, or every other.
        now.0 > changed.0 + 2
    } else {
        now > changed
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
