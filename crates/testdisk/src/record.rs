//! The record of a disk: its events, one behind the other in a file, as the server writes them and a test reads them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A write or a flush of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These bytes were written there.
    Write {
        /// Where.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// All that was written before is to outlive a power cut.
    Flush,
    /// A remark of the test.
    Note(String),
}

const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const NOTE: u8 = 3;
/// Kind, offset, length.
const HEADER: usize = 17;

/// Appends to a record.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: File,
    length: u64,
}

impl Recorder {
    pub(crate) fn new(file: File) -> Self {
        Self { file, length: 0 }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Discards all events.
    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    fn put(&mut self, kind: u8, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut header = [kind; HEADER];
        header[1..9].copy_from_slice(&offset.to_le_bytes());
        header[9..].copy_from_slice(&(data.len() as u64).to_le_bytes());
        self.file.write_all_at(&header, self.length)?;
        self.file.write_all_at(data, self.length + HEADER as u64)?;
        self.length += (HEADER + data.len()) as u64;
        Ok(())
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.put(WRITE, offset, data)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.put(FLUSH, 0, &[])
    }

    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        self.put(NOTE, 0, text.as_bytes())
    }
}

/// Reads a record of this length.
pub(crate) fn read(file: &File, length: u64) -> io::Result<Vec<Event>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the record of the disk cannot be read");
    let mut events = Vec::new();
    let mut at = 0;
    while at < length {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, at)?;
        let number = |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().expect("eight bytes"));
        let (offset, size) = (number(1), number(9));
        at += HEADER as u64;
        if size > length - at {
            return Err(damaged());
        }
        let mut data = vec![0; usize::try_from(size).map_err(|_| damaged())?];
        file.read_exact_at(&mut data, at)?;
        at += size;
        events.push(match header[0] {
            WRITE => Event::Write { offset, data },
            FLUSH => Event::Flush,
            NOTE => Event::Note(String::from_utf8(data).map_err(|_| damaged())?),
            _ => return Err(damaged()),
        });
    }
    Ok(events)
}
