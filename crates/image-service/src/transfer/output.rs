//! Destinations of an export: a directory or a tar file, written under a temporary name next to the target and renamed
//! when complete, or a device or a pipe, which is written to directly. It knows names and bytes, no image.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cri_api::{Error, Kind, Result};
use oci::{Digest, Hasher};
use store::destination::{self, Destination};

use super::tar::TarWriter;
use crate::error;

/// An export in progress. Dropping it removes what was written.
pub(crate) struct Output {
    /// The name as a person wrote it.
    target: PathBuf,
    place: OutputPath,
    form: Option<OutputForm>,
}

enum OutputForm {
    Directory(PathBuf),
    Tar(TarWriter),
}

/// The path of the output while it is written and afterwards.
enum OutputPath {
    /// A file with the first name until it is whole, and then with the second one.
    Renamed(PathBuf, PathBuf),
    /// A stream, which is written in place.
    Stream,
}

impl Output {
    /// A directory, which must not exist or be empty. A symbolic link leads to it.
    pub(crate) fn directory(target: &Path) -> Result<Self> {
        let failed = |error: &io::Error| error::from_file("write to", target, error);
        let path = match std::fs::read_dir(target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    let directory = target.display();
                    let message = format!("directory {directory} is not empty: an export does not write into it");
                    return Err(Error::new(Kind::FailedPrecondition, message));
                }
                if target.is_symlink() { target.canonicalize().map_err(|e| failed(&e))? } else { target.to_owned() }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match destination::find(target, &|| true) {
                Ok(Destination::File(path)) => path,
                Ok(Destination::Stream(_)) => return Err(failed(&io::ErrorKind::NotADirectory.into())),
                // As a directory it may have a slash at its end.
                Err(_) => target.to_owned(),
            },
            Err(error) => return Err(failed(&error)),
        };
        let temporary = temporary_path(&path)?;
        std::fs::create_dir(&temporary).map_err(|e| error::from_file("create", target, &e))?;
        let place = OutputPath::Renamed(temporary.clone(), path);
        Ok(Self { target: target.to_owned(), place, form: Some(OutputForm::Directory(temporary)) })
    }

    /// A tar file. A regular file is replaced at the end, and a symbolic link leads to it; anything else is written to as it is,
    /// by way of a file that `spool` makes.
    pub(crate) fn tar(
        target: &Path,
        spool: impl FnOnce() -> Result<File>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let failed = |error: &io::Error| error::from_file("write to", target, error);
        let (place, tar) = match destination::find(target, cancelled) {
            Ok(Destination::File(path)) => {
                let temporary = temporary_path(&path)?;
                let file = File::create_new(&temporary).map_err(|e| error::from_file("create", target, &e))?;
                (OutputPath::Renamed(temporary, path), TarWriter::new(file))
            }
            Ok(Destination::Stream(stream)) => (OutputPath::Stream, TarWriter::through(spool()?, stream)),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let message = format!("{} is a directory", target.display());
                return Err(Error::new(Kind::FailedPrecondition, message));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error::cancelled()),
            Err(error) => return Err(failed(&error)),
        };
        Ok(Self { target: target.to_owned(), place, form: Some(OutputForm::Tar(tar)) })
    }

    /// A member whose bytes are at hand.
    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.stream(|_| name.to_owned(), |out| out.write_all(bytes).map_err(|e| write_error(name, &e))).map(|_| ())
    }

    /// A member that `fill` writes and that `name` names by its digest, which is answered with the size.
    pub(crate) fn stream(
        &mut self,
        name: impl FnOnce(&Digest) -> String,
        fill: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<(Digest, u64)> {
        let failed = |error: &io::Error| error::from_file("write", &self.target, error);
        match self.form.as_mut() {
            Some(OutputForm::Directory(directory)) => {
                let part = directory.join("part");
                let file = File::create_new(&part).map_err(|e| failed(&e))?;
                let mut out = Counted::new(io::BufWriter::with_capacity(256 * 1024, file));
                fill(&mut out)?;
                out.flush().map_err(|e| failed(&e))?;
                let (digest, size) = out.finish();
                let path = directory.join(name(&digest));
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
                }
                std::fs::rename(&part, &path).map_err(|e| failed(&e))?;
                Ok((digest, size))
            }
            Some(OutputForm::Tar(tar)) => {
                let start = tar.begin().map_err(|e| failed(&e))?;
                let mut out = Counted::new(&mut *tar);
                fill(&mut out)?;
                let (digest, size) = out.finish();
                tar.end(start, &name(&digest)).map_err(|e| failed(&e))?;
                Ok((digest, size))
            }
            None => Err(Error::new(Kind::Internal, "the export has ended: this is a fault of the program")),
        }
    }

    /// Puts it in its place.
    pub(crate) fn finish(mut self) -> Result<()> {
        let failed = |error: &io::Error| error::from_file("write", &self.target, error);
        if let Some(OutputForm::Tar(tar)) = self.form.take() {
            let file = tar.finish().map_err(|e| failed(&e))?;
            match self.place {
                OutputPath::Renamed(..) => file.sync_all(),
                OutputPath::Stream => destination::flushed(&file),
            }
            .map_err(|e| failed(&e))?;
        }
        match &self.place {
            OutputPath::Renamed(temporary, path) => std::fs::rename(temporary, path).map_err(|e| failed(&e)),
            OutputPath::Stream => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let OutputPath::Renamed(temporary, _) = &self.place else { return };
        // After the rename there is nothing under this name.
        let removed = match temporary.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(temporary),
            Ok(_) => std::fs::remove_file(temporary),
            Err(_) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %temporary.display(), "cannot remove an unfinished export");
        }
    }
}

pub(crate) fn write_error(name: &str, error: &io::Error) -> Error {
    error::from_file("write", Path::new(name), error)
}

/// Returns an unused name next to a file.
fn temporary_path(path: &Path) -> Result<PathBuf> {
    match path.file_name() {
        Some(_) => Ok(destination::temporary_path(path)),
        None => Err(error::invalid(format!("{} has no name", path.display()))),
    }
}

/// Hashes and counts what passes.
struct Counted<W> {
    out: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Counted<W> {
    fn new(out: W) -> Self {
        Self { out, hasher: oci::Algorithm::Sha256.hasher(), size: 0 }
    }

    fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.size)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
