//! The content of a disk in memory: taken from a disk, updated by recorded events, copied, mounted by itself.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::mounted::{Kind, Mounted};
use crate::record::Event;
use base::{LoopDevice, LoopFlags};

/// Bytes that a disk writes at once or not at all.
pub const SECTOR: usize = 512;
/// In what pieces content is copied.
const PIECE: usize = 1 << 20;

/// A disk's content. It takes as much memory as is not zero.
#[derive(Debug)]
pub struct Image {
    file: File,
    kind: Kind,
}

impl Image {
    /// All zero.
    pub(crate) fn empty(kind: Kind, bytes: u64) -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create("imagelet-testdisk", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        Ok(Self { file, kind })
    }

    /// Takes part in it, from another process too.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Another with the same content.
    ///
    /// # Errors
    /// There is no memory.
    pub fn copy(&self) -> io::Result<Self> {
        let length = self.file.metadata()?.len();
        let copy = Self::empty(self.kind, length)?;
        let mut buffer = vec![0; PIECE];
        let mut at = 0;
        loop {
            let (from, to) = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(from) => (from, rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(from))?),
                // There is nothing behind.
                Err(Errno::NXIO) => return Ok(copy),
                Err(error) => return Err(error.into()),
            };
            at = from;
            while at < to {
                let wanted = usize::try_from(to - at).unwrap_or(PIECE).min(PIECE);
                self.file.read_exact_at(&mut buffer[..wanted], at)?;
                copy.file.write_all_at(&buffer[..wanted], at)?;
                at += wanted as u64;
            }
        }
    }

    /// Applies a write. Flushes and notes have no effect.
    ///
    /// # Errors
    /// There is no memory.
    pub fn apply(&self, event: &Event) -> io::Result<()> {
        match event {
            Event::Write { offset, data } => self.file.write_all_at(data, *offset),
            Event::Flush | Event::Note(_) => Ok(()),
        }
    }

    /// Applies some sectors of a write that was not completed.
    ///
    /// # Errors
    /// There is no memory.
    pub fn apply_torn(&self, event: &Event, sectors: usize) -> io::Result<()> {
        match event {
            Event::Write { offset, data } => {
                self.file.write_all_at(&data[..data.len().min(sectors.saturating_mul(SECTOR))], *offset)
            }
            Event::Flush | Event::Note(_) => Ok(()),
        }
    }

    /// Mounts the image like a machine that starts: the journal is replayed. Later writes change this image.
    ///
    /// # Errors
    /// The image cannot be mounted.
    pub fn mount(&self) -> io::Result<Mounted> {
        let device = LoopDevice::new(&self.file, LoopFlags { block_bytes: 512, read_only: false, direct: false })?;
        let path = device.path().to_owned();
        Mounted::of_device(self.kind, &path, Some(device))
    }
}

/// For the server: the same content under another descriptor.
pub(crate) fn open_shared(path: &str) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}
