//! [`ImageFile`]: an EROFS file that grows. The writer hands over long pieces; they go straight to `write(2)`.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use erofs::Sink;
use rustix::fs::Advice;

/// After so many bytes the kernel is asked to begin to write them to the disk, because the commit of an EROFS file waits until
/// everything is written.
const WRITE_BACK: u64 = 8 << 20;

pub(super) struct ImageFile<'a> {
    file: File,
    length: u64,
    /// The kernel was asked to write what lies before.
    begun: u64,
    write_back: Option<&'a dyn Fn(u64)>,
}

impl<'a> ImageFile<'a> {
    pub(super) fn new(file: File, write_back: Option<&'a dyn Fn(u64)>) -> Self {
        Self { file, length: 0, begun: 0, write_back }
    }

    fn begin(&mut self) {
        if let (Some(written), Some(length)) = (self.write_back, NonZeroU64::new(self.length - self.begun)) {
            // Pages that are still being written stay in memory. An ignored advice is not an error.
            let _ = rustix::fs::fadvise(&self.file, self.begun, Some(length), Advice::DontNeed);
            written(length.get());
            self.begun = self.length;
        }
    }

    /// The EROFS file is whole.
    pub(super) fn end(mut self) {
        self.begin();
    }
}

impl Sink for ImageFile<'_> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        if self.length - self.begun >= WRITE_BACK {
            self.begin();
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }
}
