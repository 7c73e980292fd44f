//! [`Log`]: short pieces of bytes that are seldom read again, each with a link to another. The latest are in memory, the rest in
//! a file without a name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags};

/// Bytes in memory.
const RECENT: usize = 1 << 20;
/// Before the bytes: the link, and how many bytes there are.
const HEAD: usize = 8 + 4;
/// No link.
const NONE: u64 = u64::MAX;

pub(super) struct Log {
    dir: OwnedFd,
    file: Option<File>,
    /// Bytes in the file.
    spilled: u64,
    recent: Vec<u8>,
}

impl Log {
    pub(super) fn new(dir: OwnedFd) -> Self {
        Self { dir, file: None, spilled: 0, recent: Vec::new() }
    }

    /// Adds a piece, and returns its position.
    pub(super) fn put(&mut self, link: Option<u64>, bytes: &[u8]) -> io::Result<u64> {
        if self.recent.len() + HEAD + bytes.len() > RECENT {
            self.spill()?;
        }
        let at = self.spilled + self.recent.len() as u64;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.recent.extend_from_slice(&link.unwrap_or(NONE).to_le_bytes());
        self.recent.extend_from_slice(&length.to_le_bytes());
        self.recent.extend_from_slice(bytes);
        Ok(at)
    }

    /// The piece at a place, and its link.
    pub(super) fn get(&self, at: u64) -> io::Result<(Option<u64>, Vec<u8>)> {
        let mut head = [0; HEAD];
        self.read(at, &mut head)?;
        let (link, length) = head.split_at(8);
        let link = u64::from_le_bytes(link.try_into().expect("eight bytes"));
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let mut bytes = vec![0; length as usize];
        self.read(at + HEAD as u64, &mut bytes)?;
        Ok(((link != NONE).then_some(link), bytes))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match (at.checked_sub(self.spilled), &self.file) {
            (Some(at), _) => {
                let from = usize::try_from(at).ok().and_then(|at| self.recent.get(at..)?.get(..into.len()));
                into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            (None, Some(file)) => file.read_exact_at(into, at),
            (None, None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(temporary(self.dir.as_fd(), "log")?);
        }
        if let Some(file) = &self.file {
            file.write_all_at(&self.recent, self.spilled)?;
        }
        self.spilled += self.recent.len() as u64;
        self.recent.clear();
        Ok(())
    }
}

/// A new file without a name, for what does not fit into memory: freed when it is closed.
pub(super) fn temporary(dir: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_from_memory_and_from_the_file() {
        let top = tempfile::tempdir().expect("tempdir");
        let mut log = Log::new(File::open(top.path()).expect("opens").into());
        let mut last = None;
        for number in 0..1000_u32 {
            let bytes = number.to_string().repeat(number as usize % 3000);
            last = Some(log.put(last, bytes.as_bytes()).expect("is put"));
        }
        assert!(log.spilled > 0 && !log.recent.is_empty());
        for number in (0..1000_u32).rev() {
            let (link, bytes) = log.get(last.expect("one more")).expect("is there");
            assert_eq!(bytes, number.to_string().repeat(number as usize % 3000).as_bytes());
            last = link;
        }
        assert_eq!(last, None);
        assert_eq!(std::fs::read_dir(top.path()).expect("is read").count(), 0, "the file has no name");
    }
}
