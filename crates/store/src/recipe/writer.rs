//! [`Writer`]: records are written to a zstd stream while the layer is unpacked. Headers of tar compress some thirty times at the
//! fastest level, so that this costs little compared to the creation of the files.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};

use super::{DATA, END, FILE, INODE, MAGIC, MOVED, RAW};

/// Raw bytes, and then records, are gathered up to this size: a call of the compressor costs as much as compressing a header.
const GATHER: usize = 128 << 10;

/// Writes one recipe.
pub(crate) struct Writer {
    out: zstd::stream::write::Encoder<'static, File>,
    /// Raw bytes whose number is not yet known.
    raw: Vec<u8>,
    /// Records that are whole.
    records: Vec<u8>,
}

impl Writer {
    /// Creates the file, which must not exist.
    pub(crate) fn create(layer_dir: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(layer_dir, FILE, flags, Mode::from_raw_mode(0o600))?;
        let mut out = zstd::stream::write::Encoder::new(File::from(fd), 1)?;
        out.include_checksum(true)?;
        out.write_all(MAGIC)?;
        Ok(Self { out, raw: Vec::new(), records: Vec::with_capacity(GATHER) })
    }

    /// Bytes of the stream that are no file data.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.raw.len() + bytes.len() > GATHER {
            self.flush_raw()?;
        }
        if bytes.len() < GATHER {
            self.raw.extend_from_slice(bytes);
            return Ok(());
        }
        self.raw_record(bytes.len());
        self.flush_records()?;
        self.out.write_all(bytes)
    }

    /// Bytes of the stream that are in a file of `fs/`.
    pub(crate) fn data(&mut self, path: &[u8], offset: u64, len: u64) -> io::Result<()> {
        self.flush_raw()?;
        self.named(DATA, path, &[offset, len])
    }

    /// Bytes of the stream that are in a file of the image.
    pub(crate) fn inode_data(&mut self, nid: u64, offset: u64, len: u64) -> io::Result<()> {
        self.flush_raw()?;
        self.records.push(INODE);
        for n in [nid, offset, len] {
            number(&mut self.records, n);
        }
        self.flush_full_records()
    }

    /// Records that the file at this path has been moved to `replaced/<number>`.
    pub(crate) fn moved(&mut self, path: &[u8], number: u64) -> io::Result<()> {
        self.flush_raw()?;
        self.named(MOVED, path, &[number])
    }

    /// Ends the recipe of a stream of this length.
    pub(crate) fn finish(mut self, stream_bytes: u64) -> io::Result<()> {
        self.flush_raw()?;
        self.records.push(END);
        number(&mut self.records, stream_bytes);
        self.flush_records()?;
        self.out.finish().map(drop)
    }

    fn named(&mut self, tag: u8, path: &[u8], numbers: &[u64]) -> io::Result<()> {
        self.records.push(tag);
        number(&mut self.records, path.len() as u64);
        self.records.extend_from_slice(path);
        for n in numbers {
            number(&mut self.records, *n);
        }
        self.flush_full_records()
    }

    fn raw_record(&mut self, len: usize) {
        self.records.push(RAW);
        number(&mut self.records, len as u64);
    }

    fn flush_raw(&mut self) -> io::Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        self.raw_record(self.raw.len());
        self.records.extend_from_slice(&self.raw);
        self.raw.clear();
        self.flush_full_records()
    }

    fn flush_full_records(&mut self) -> io::Result<()> {
        if self.records.len() >= GATHER { self.flush_records() } else { Ok(()) }
    }

    fn flush_records(&mut self) -> io::Result<()> {
        self.out.write_all(&self.records)?;
        self.records.clear();
        Ok(())
    }
}

/// Appends a number in LEB128.
fn number(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits fit");
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}
