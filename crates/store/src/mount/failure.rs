//! [`Failure`]: what the kernel refused while something was mounted.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// A failed operation, with the error of the kernel.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) operation: &'static str,
    pub(super) source: io::Error,
}

impl Failure {
    /// Something that was done to something else than the target.
    pub(super) fn at(operation: &'static str, path: &Path, error: Errno) -> Self {
        Self { operation, source: error.into() }.naming(path)
    }

    pub(super) fn naming(self, path: &Path) -> Self {
        let text = format!("{}: {}", path.display(), self.source);
        Self { operation: self.operation, source: io::Error::new(self.source.kind(), text) }
    }
}
