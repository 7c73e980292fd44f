//! [`open`]: the file of an archive, so that any part of it can be read. A file that is compressed as a whole, and the
//! bytes of a pipe or a socket, are first copied into a file without a name, within the limits of layers. It does not
//! interpret the archive. Called by the import.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;

use crate::inflate::{BUFFER, Compression, MAGIC, Sink, Source, Stopped, detect};
use bytes::Bytes;
use cri_api::{Error, Kind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use crate::error::{self, cancelled, damaged, invalid};
use crate::options::Limits;

/// Kibibytes that the decoder of an xz stream may take: the dictionary of `xz -9`, and what is around it.
const XZ_MEMORY_KIB: u32 = 80 << 10;
/// How long a silent pipe is polled between checks for cancellation.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const XZ: &[u8] = b"\xfd7zXZ\0";

/// The file of an archive.
#[derive(Debug)]
pub(crate) enum Opened {
    Directory(File),
    /// A tar file, or something else that is not compressed.
    File(File),
}

/// The things that a copy needs.
pub(crate) struct Copying<'a> {
    /// Makes an empty file.
    pub(crate) spool: &'a dyn Fn() -> Result<File>,
    pub(crate) limits: &'a Limits,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
}

/// Opens the file of an archive. A pipe is waited for and read to its end.
pub(crate) fn open(path: &Path, copying: &Copying<'_>) -> Result<Opened> {
    let failed = |error: &io::Error| error::from_file("read", path, error);
    let file = open_file(path).map_err(|e| failed(&e))?;
    let kind = file.metadata().map_err(|e| failed(&e))?.file_type();
    if kind.is_dir() {
        return Ok(Opened::Directory(file));
    }
    if kind.is_file() {
        let mut head = [0; MAGIC];
        let length = read_head(&file, &mut head).map_err(|e| failed(&e))?;
        return match detect(&head[..length]) {
            Ok(Compression::Plain) => Ok(Opened::File(file)),
            _ => copy(path, InputStream::new(file, copying.cancelled), copying).map(Opened::File),
        };
    }
    copy(path, InputStream::new(file, copying.cancelled), copying).map(Opened::File)
}

fn read_head(file: &File, head: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    loop {
        match file.read_at(&mut head[length..], length as u64)? {
            0 => return Ok(length),
            more => length += more,
        }
    }
}

/// Opens a file without waiting for a writer.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        // A socket, or a file that only the process that opened it may open: use that process's open descriptor.
        Err(errno @ (Errno::NXIO | Errno::ACCESS)) => of_process(path).unwrap_or_else(|| Err(errno.into())),
        Err(errno) => Err(errno.into()),
    }
}

/// The open file that `/dev/stdin`, `/dev/fd/N` or `/proc/PID/fd/N` stands for; `None` for other paths.
fn of_process(path: &Path) -> Option<io::Result<File>> {
    let own = rustix::process::getpid();
    let number = |text: &Path| text.to_str()?.parse::<i32>().ok();
    let (process, descriptor) = if path == Path::new("/dev/stdin") {
        (own, 0)
    } else if let Ok(rest) = path.strip_prefix("/dev/fd").or_else(|_| path.strip_prefix("/proc/self/fd")) {
        (own, number(rest)?)
    } else {
        let mut parts = path.strip_prefix("/proc").ok()?.components();
        let process = Pid::from_raw(number(parts.next()?.as_ref())?)?;
        let is_fd = parts.next()?.as_os_str() == "fd";
        (process, is_fd.then(|| number(parts.as_path())).flatten()?)
    };
    let file = rustix::process::pidfd_open(process, PidfdFlags::empty())
        .and_then(|process| rustix::process::pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()));
    Some(file.map(File::from).map_err(io::Error::from))
}

/// Copies all of a stream into a file, decompressed.
fn copy(path: &Path, mut stream: InputStream<'_>, copying: &Copying<'_>) -> Result<File> {
    let read = |error: &io::Error| if is_given_up(error) { cancelled() } else { error::from_file("read", path, error) };
    let mut head = [0; MAGIC];
    let mut length = 0;
    while length < MAGIC {
        match stream.read(&mut head[length..]).map_err(|e| read(&e))? {
            0 => break,
            more => length += more,
        }
    }
    stream.head = Bytes::copy_from_slice(&head[..length]);
    stream.count.set(0);
    let out = Copy { file: (copying.spool)()?, limits: copying.limits, written: 0 };
    if head[..length].starts_with(XZ) { copy_xz(stream, out) } else { copy_other(path, stream, out) }
}

fn copy_xz(stream: InputStream<'_>, mut out: Copy<'_>) -> Result<File> {
    let taken = Rc::clone(&stream.count);
    let mut xz = lzma_rust2::XzReader::new_mem_limit(stream, true, XZ_MEMORY_KIB);
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = xz.read(&mut buffer).map_err(|error| match error.kind() {
            _ if is_given_up(&error) => cancelled(),
            io::ErrorKind::OutOfMemory => {
                invalid("the xz stream needs a dictionary of more than 64 MiB: decompress the archive first")
            }
            _ => damaged(format!("inflate the xz stream: {error}")),
        })?;
        if length == 0 {
            return Ok(out.file);
        }
        let taken = taken.get();
        out.write(&buffer[..length], taken)?;
    }
}

fn copy_other(path: &Path, mut stream: InputStream<'_>, out: Copy<'_>) -> Result<File> {
    let mut sink = InputSpool { taken: Rc::clone(&stream.count), out, failed: None };
    let run = crate::inflate::run(&mut stream, &mut sink, &crate::inflate::Options::default(), &mut |_| {});
    if let Some(failed) = sink.failed {
        return Err(failed);
    }
    match run {
        Ok(()) => Ok(sink.out.file),
        Err(crate::inflate::Error::Source(error)) if is_given_up(&error) => Err(cancelled()),
        Err(crate::inflate::Error::Source(error)) => Err(error::from_file("read", path, &error)),
        Err(crate::inflate::Error::Unsupported(unsupported)) => {
            let name = unsupported.name();
            Err(invalid(format!(
                "it is compressed with {name}: archives may be with gzip, zstd or xz; decompress it first"
            )))
        }
        Err(error) => Err(Error::from_source(Kind::DataLoss, &error)),
    }
}

/// A file, a pipe or a socket, read from its start to its end. It can be cancelled while it is silent.
struct InputStream<'a> {
    file: File,
    /// Bytes that were read already and come first.
    head: Bytes,
    /// Bytes that were taken out.
    count: Rc<Cell<u64>>,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> InputStream<'a> {
    fn new(file: File, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { file, head: Bytes::new(), count: Rc::default(), cancelled }
    }
}

impl Read for InputStream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = if self.head.is_empty() {
            self.read_file(out)?
        } else {
            let length = out.len().min(self.head.len());
            out[..length].copy_from_slice(&self.head.split_to(length));
            length
        };
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

impl InputStream<'_> {
    fn read_file(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.cancelled)() {
                return Err(io::Error::other(GivenUp));
            }
            let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut ready, Some(&PAUSE)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            match rustix::io::read(&self.file, &mut *out) {
                Ok(length) => return Ok(length),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Source for InputStream<'_> {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut bytes = vec![0; BUFFER];
        let length = self.read(&mut bytes)?;
        bytes.truncate(length);
        Ok((length > 0).then(|| bytes.into()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the import was given up")]
struct GivenUp;

fn is_given_up(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<GivenUp>())
}

/// The file that a stream is copied to.
struct Copy<'a> {
    file: File,
    limits: &'a Limits,
    written: u64,
}

impl Copy<'_> {
    /// Appends bytes, which came of `taken` bytes of the stream.
    fn write(&mut self, bytes: &[u8], taken: u64) -> Result<()> {
        self.written += bytes.len() as u64;
        let limit = self.limits.inflated(taken);
        if self.written > limit {
            return Err(invalid(format!(
                "the limit of bytes of an archive that {taken} compressed bytes make is {limit}, and there are more"
            )));
        }
        let limit = self.limits.image_bytes;
        if self.written > limit {
            return Err(invalid(format!("the limit of bytes of an archive is {limit}, and there are more")));
        }
        self.file.write_all(bytes).map_err(|e| error::from_file("write", Path::new("a copy of the archive"), &e))
    }
}

/// Takes decompressed bytes for a [`Copy`].
struct InputSpool<'a> {
    out: Copy<'a>,
    taken: Rc<Cell<u64>>,
    failed: Option<Error>,
}

impl Sink for InputSpool<'_> {
    fn buffer(&mut self) -> std::result::Result<Vec<u8>, Stopped> {
        Ok(vec![0; BUFFER])
    }

    fn send(&mut self, full: Vec<u8>, len: usize) -> std::result::Result<(), Stopped> {
        self.out.write(&full[..len], self.taken.get()).map_err(|error| {
            self.failed = Some(error);
            Stopped
        })
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
