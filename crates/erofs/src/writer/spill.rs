//! [`Spill`]: the temporary file for what does not fit into memory. Made when it is first needed; only ever longer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::error::WriteError;

/// Makes the file.
pub(super) type SpillFactory = Box<dyn FnMut() -> io::Result<File> + Send>;

/// The file, and how long it is.
pub(super) struct Spill {
    make: SpillFactory,
    file: Option<File>,
    end: u64,
}

impl Spill {
    pub(super) fn new(make: SpillFactory) -> Self {
        Self { make, file: None, end: 0 }
    }

    /// Writes at the end, and answers where.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, WriteError> {
        let at = self.end;
        self.write(at, bytes)?;
        self.end += bytes.len() as u64;
        Ok(at)
    }

    /// Writes over what is there.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), WriteError> {
        if self.file.is_none() {
            self.file = Some((self.make)().map_err(WriteError::Spill)?);
        }
        let file = self.file.as_ref().expect("made above");
        file.write_all_at(bytes, at).map_err(WriteError::Spill)
    }

    /// Fills the buffer with what was written.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), WriteError> {
        let file = self.file.as_ref().ok_or(WriteError::Misused("nothing was put aside"))?;
        file.read_exact_at(buffer, at).map_err(WriteError::Spill)
    }
}
