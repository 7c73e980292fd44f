//! Where an export goes: a directory or a tar file, written under a temporary name beside the target and renamed when it
//! is whole. It knows names and bytes, no image.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cri_api::{Error, Kind, Result};
use oci::{Digest, Hasher};

use super::tar::TarWriter;
use crate::error;

/// An export in progress. Dropping it removes what was written.
pub(crate) struct Output {
    target: PathBuf,
    temporary: PathBuf,
    form: Option<Form>,
}

enum Form {
    Directory,
    Tar(TarWriter),
}

impl Output {
    /// A directory, which must not exist or be empty.
    pub(crate) fn directory(target: &Path) -> Result<Self> {
        let occupied = match std::fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error::from_file("write to", target, &error)),
        };
        if occupied {
            let message = format!("directory {} is not empty: an export does not write into it", target.display());
            return Err(Error::new(Kind::FailedPrecondition, message));
        }
        let temporary = beside(target)?;
        std::fs::create_dir(&temporary).map_err(|e| error::from_file("create", &temporary, &e))?;
        Ok(Self { target: target.to_owned(), temporary, form: Some(Form::Directory) })
    }

    /// A tar file; one that exists is replaced at the end.
    pub(crate) fn tar(target: &Path) -> Result<Self> {
        if target.is_dir() {
            return Err(Error::new(Kind::FailedPrecondition, format!("{} is a directory", target.display())));
        }
        let temporary = beside(target)?;
        let file = File::create_new(&temporary).map_err(|e| error::from_file("create", &temporary, &e))?;
        Ok(Self { target: target.to_owned(), temporary, form: Some(Form::Tar(TarWriter::new(file))) })
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
        let temporary = self.temporary.clone();
        let failed = |error: &io::Error| error::from_file("write", &temporary, error);
        match self.form.as_mut() {
            Some(Form::Directory) => {
                let part = self.temporary.join("part");
                let file = File::create_new(&part).map_err(|e| failed(&e))?;
                let mut out = Counted::new(io::BufWriter::with_capacity(256 * 1024, file));
                fill(&mut out)?;
                out.flush().map_err(|e| failed(&e))?;
                let (digest, size) = out.finish();
                let path = self.temporary.join(name(&digest));
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
                }
                std::fs::rename(&part, &path).map_err(|e| failed(&e))?;
                Ok((digest, size))
            }
            Some(Form::Tar(tar)) => {
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
        if let Some(Form::Tar(tar)) = self.form.take() {
            let synced = tar.finish().and_then(|file| file.sync_all());
            synced.map_err(|e| error::from_file("write", &self.temporary, &e))?;
        }
        std::fs::rename(&self.temporary, &self.target).map_err(|e| error::from_file("write", &self.target, &e))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After the rename there is nothing under this name.
        let removed = match self.temporary.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(&self.temporary),
            Ok(_) => std::fs::remove_file(&self.temporary),
            Err(_) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %self.temporary.display(), "an unfinished export stays");
        }
    }
}

pub(crate) fn write_error(name: &str, error: &io::Error) -> Error {
    error::from_file("write", Path::new(name), error)
}

/// A name beside the target that nobody else has.
fn beside(target: &Path) -> Result<PathBuf> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let name = target.file_name().ok_or_else(|| error::invalid(format!("{} has no name", target.display())))?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}-{number}.partial", std::process::id()));
    Ok(target.with_file_name(temporary))
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
