//! [`Disk`]: a loop device over a file that a process of its own serves. Starts that process, and sends it commands.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};

use crate::fault::Fault;
use crate::image::Image;
use crate::mounted::{Kind, Mounted};
use crate::record::{self, Event};
use crate::server::{ASKED, CONTROL, DISK, SERVER_TEST};
use base::{LoopDevice, LoopFlags};

/// Requests to a disk since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// How many of these failed.
    pub failed: u64,
}

/// A disk. Its mounts go before it does.
#[derive(Debug)]
pub struct Disk {
    content: Image,
    record: File,
    control: Option<File>,
    device: Option<LoopDevice>,
    server: Child,
}

impl Disk {
    /// A disk of this size with an empty file system. Needs root, and the test binary has to have called [`crate::serve`].
    ///
    /// # Errors
    /// The file system cannot be made, or the disk not be served.
    pub fn new(kind: Kind, bytes: u64) -> io::Result<Self> {
        let content = Image::empty(kind, bytes)?;
        kind.make(&content.path())?;
        let record = Image::empty(kind, 0)?;
        let fuse = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("/dev/fuse: {error}; this needs root"))
        })?;
        let number = fuse.as_raw_fd().to_string();
        let options =
            [("source", "testdisk"), ("fd", &number), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")];
        let served = Mounted::new("fuse", &options, &[])?;
        #[expect(
            clippy::disallowed_methods,
            reason = "a disk is served by a process of its own, so that it can be killed"
        )]
        let server = Command::new(std::env::current_exe()?)
            .args([SERVER_TEST, "--exact", "--ignored", "--nocapture"])
            .env(ASKED, format!("{} {}", content.path().display(), record.path().display()))
            .stdin(Stdio::from(fuse))
            .stdout(Stdio::null())
            .spawn()?;
        let record = record.into_file();
        let mut disk = Self { content, record, control: None, device: None, server };
        let open = |name| {
            let file = File::options().read(true).write(true).open(served.path().join(name));
            file.map_err(|error| io::Error::new(error.kind(), format!("the disk's server did not start: {error}")))
        };
        disk.control = Some(open(CONTROL)?);
        disk.device =
            Some(LoopDevice::new(&open(DISK)?, LoopFlags { block_bytes: 512, read_only: false, direct: true })?);
        Ok(disk)
    }

    /// The block device.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.device.as_ref().expect("it has one until it is dropped").path()
    }

    /// Mounts its file system.
    ///
    /// # Errors
    /// The disk cannot be mounted.
    pub fn mount(&self) -> io::Result<Mounted> {
        Mounted::of_device(self.content.kind(), self.device(), None)
    }

    fn control(&self) -> &File {
        self.control.as_ref().expect("it has one until it is dropped")
    }

    fn send_line(&self, line: &str) -> io::Result<()> {
        // One write is one command.
        match self.control().write_at(line.as_bytes(), 0)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn ask(&self) -> io::Result<(Counts, u64)> {
        let mut report = [0; 200];
        let length = self.control().read_at(&mut report, 0)?;
        let numbers: Vec<u64> =
            String::from_utf8_lossy(&report[..length]).split(' ').filter_map(|number| number.parse().ok()).collect();
        match numbers[..] {
            [reads, writes, flushes, failed, recorded] => Ok((Counts { reads, writes, flushes, failed }, recorded)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The requests so far.
    ///
    /// # Errors
    /// The server has exited.
    pub fn counts(&self) -> io::Result<Counts> {
        Ok(self.ask()?.0)
    }

    /// Adds a fault.
    ///
    /// # Errors
    /// The server has exited.
    pub fn fail(&self, fault: Fault) -> io::Result<()> {
        self.send_line(&format!("fail {}", fault.to_line()))
    }

    /// Takes all faults away.
    ///
    /// # Errors
    /// The server has exited.
    pub fn heal(&self) -> io::Result<()> {
        self.send_line("heal")
    }

    /// Begins a new record, and returns the content at its beginning. To be called while nothing is mounted.
    ///
    /// # Errors
    /// There is no memory, or the server has exited.
    pub fn record(&self) -> io::Result<Image> {
        self.send_line("record")?;
        self.content.copy()
    }

    /// A remark for the record.
    ///
    /// # Errors
    /// The server has exited.
    pub fn note(&self, text: &str) -> io::Result<()> {
        self.send_line(&format!("note {text}"))
    }

    /// Where another process puts remarks, by [`crate::note`].
    #[must_use]
    pub fn notes(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.control().as_raw_fd()).into()
    }

    /// The record so far.
    ///
    /// # Errors
    /// The server has exited.
    pub fn recorded(&self) -> io::Result<Vec<Event>> {
        record::read(&self.record, self.ask()?.1)
    }
}

/// A remark for the record of a disk of another process, whose [`Disk::notes`] this is.
///
/// # Errors
/// That process has exited, or its disk was dropped.
pub fn note(notes: &Path, text: &str) -> io::Result<()> {
    let line = format!("note {text}");
    // One write is one command.
    match File::options().write(true).open(notes)?.write_at(line.as_bytes(), 0)? {
        written if written == line.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.control = None;
        self.device = None;
        if std::thread::panicking() {
            // A mount may be there still.
            let _ = self.server.kill();
        }
        // The server ends by itself, now that its file is no longer open.
        let _ = self.server.wait();
    }
}
