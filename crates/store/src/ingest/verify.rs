//! A layer held against its own stream: the recipe gives the stream again, whose digest is known, and for attributes the stream is
//! unpacked once more without the content of files, to compare the two trees. Changes nothing.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use oci::{Digest, Hasher};

use crate::disk::layer::Shape;
use crate::disk::layout;
use crate::ingest::Ingests;
use crate::ingest::layer::{LayerPlace, UnpackedLayer};
use crate::io_error::is_of_the_medium;
use crate::layers::compare::NotCompared;
use crate::options::Cancelled;
use crate::recipe::{self, RecipeError};
use crate::unpack::UnpackError;

/// Bytes between two reports of progress.
pub(crate) const STEP: u64 = 4 << 20;

/// Called with the number of bytes read since the last call.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Why a layer could not be verified against its diff id.
pub(crate) enum Unverified {
    Differs {
        /// The fault, in words.
        detail: String,
        /// True if it is that, and not the looking at it, that failed.
        certain: bool,
    },
    Cancelled,
}

/// Builds the layer's stream again, and compares its digest.
pub(crate) fn verify_digest(
    directory: &OwnedFd,
    diff_id: &Digest,
    shape: Shape,
    read: Progress<'_>,
    cancelled: Cancelled<'_>,
) -> Result<(), Unverified> {
    if let Err(error) = shape.verify(directory.as_fd()) {
        return Err(of_recipe(&error));
    }
    let mut out = HashingWriter::new(diff_id, io::sink(), read, cancelled);
    let rebuilt = shape.rebuild(directory.as_fd(), &mut out);
    if out.stopped {
        return Err(Unverified::Cancelled);
    }
    rebuilt.map_err(|error| of_recipe(&error))?;
    of_digest(diff_id, &out.finish())
}

impl Ingests {
    /// The same for a directory that no record names: the copy that it is like, or what is wrong in words; nothing where it was
    /// given up.
    pub(crate) fn compare_with_own_stream(
        self: &Arc<Self>,
        directory: &OwnedFd,
        diff_id: &Digest,
        shape: Shape,
        cancelled: Cancelled<'_>,
    ) -> Result<Option<UnpackedLayer>, String> {
        match self.hollow_copy(directory, diff_id, shape, &|_| {}, cancelled) {
            Ok(copy) => Ok(Some(copy)),
            Err(Unverified::Differs { detail, .. }) => Err(detail),
            Err(Unverified::Cancelled) => Ok(None),
        }
    }

    /// A copy without content, which the layer is like.
    pub(crate) fn hollow_copy(
        self: &Arc<Self>,
        directory: &OwnedFd,
        diff_id: &Digest,
        shape: Shape,
        read: Progress<'_>,
        cancelled: Cancelled<'_>,
    ) -> Result<UnpackedLayer, Unverified> {
        if let Err(error) = shape.verify(directory.as_fd()) {
            return Err(of_recipe(&error));
        }
        let unsure = |what: &str, error: &dyn std::error::Error| {
            let mut detail = format!("{what}: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                detail = format!("{detail}: {error}");
                cause = error.source();
            }
            Err(bad(detail, false))
        };
        let ingest = match self.new_layer(shape) {
            Ok(ingest) => ingest,
            Err(error) => return unsure("no copy to compare it with could be begun", &error),
        };
        let (reader, writer) = match io::pipe() {
            Ok(ends) => ends,
            Err(error) => return unsure("no pipe could be opened", &error),
        };
        let compared = std::thread::scope(|scope| {
            let rebuild = move || {
                let mut out = HashingWriter::new(diff_id, writer, read, cancelled);
                let rebuilt = shape.rebuild(directory.as_fd(), &mut out);
                (rebuilt, out.stopped, out.finish())
            };
            let rebuilding = std::thread::Builder::new().spawn_scoped(scope, rebuild)?;
            let mut reader = BufReader::with_capacity(recipe::BUFFER, reader);
            let unpacked = ingest.unpack_with(&mut reader, cancelled, true);
            if unpacked.is_err() {
                // The digest of the whole stream is more informative than the place where the unpacking stopped.
                let mut rest = [0; 64 << 10];
                while reader.read(&mut rest).is_ok_and(|length| length > 0) {}
            }
            drop(reader);
            let (rebuilt, stopped, got) = rebuilding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, io::Error>((rebuilt, got, stopped, unpacked))
        });
        let (rebuilt, got, stopped, unpacked) = match compared {
            Ok(compared) => compared,
            Err(error) => return unsure("no thread could be started", &error),
        };
        if stopped || matches!(unpacked, Err(UnpackError::Cancelled)) {
            return Err(Unverified::Cancelled);
        }
        if let Err(error) = &rebuilt {
            return Err(of_recipe(error));
        }
        of_digest(diff_id, &got)?;
        let copy = match unpacked {
            Ok(copy) => copy,
            Err(error) => return unsure("no copy could be made to compare it with", &error),
        };
        let LayerPlace::Private { number, .. } = copy.place() else {
            return Err(bad("the copy to compare it with was taken".to_owned(), false));
        };
        let compared = layout::open_directory(&self.catalog.disk.layout.ingest, &number.to_string())
            .map_err(NotCompared::Copy)
            .and_then(|own| shape.difference(directory.as_fd(), own.as_fd(), &copy.outcome.implicit_dirs, cancelled));
        match compared {
            Ok(None) if cancelled() => Err(Unverified::Cancelled),
            Ok(None) => Ok(copy),
            Ok(Some(what)) => Err(bad(what, true)),
            Err(NotCompared::Layer(error)) => {
                Err(bad(format!("it could not be compared: {error}"), is_of_the_medium(&error)))
            }
            Err(NotCompared::Copy(error)) => unsure("the copy to compare it with could not be read", &error),
        }
    }
}

fn bad(detail: String, certain: bool) -> Unverified {
    Unverified::Differs { detail, certain }
}

pub(crate) fn of_recipe(error: &RecipeError) -> Unverified {
    match error {
        RecipeError::Missing | RecipeError::Damaged { .. } => bad(error.to_string(), true),
        RecipeError::Read { source, .. } => bad(format!("{error}: {source}"), is_of_the_medium(source)),
        // The only write that can fail is that to a pipe whose reader was dropped.
        RecipeError::Write(source) => bad(format!("{error}: {source}"), false),
    }
}

fn of_digest(wanted: &Digest, got: &Digest) -> Result<(), Unverified> {
    if got == wanted {
        return Ok(());
    }
    Err(bad(format!("its content has the diff id {got} instead of {wanted}"), true))
}

/// Hashes what passes, counts it, and stops when asked to.
struct HashingWriter<'a, W> {
    hasher: Hasher,
    out: W,
    untold: u64,
    read: Progress<'a>,
    cancelled: Cancelled<'a>,
    stopped: bool,
}

impl<'a, W> HashingWriter<'a, W> {
    fn new(diff_id: &Digest, out: W, read: Progress<'a>, cancelled: Cancelled<'a>) -> Self {
        Self { hasher: diff_id.algorithm().hasher(), out, untold: 0, read, cancelled, stopped: false }
    }

    fn finish(self) -> Digest {
        (self.read)(self.untold);
        self.hasher.finish()
    }
}

impl<W: Write> Write for HashingWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.cancelled)() {
            self.stopped = true;
            return Err(io::Error::other("the check was given up"));
        }
        self.out.write_all(bytes)?;
        self.hasher.update(bytes);
        self.untold += bytes.len() as u64;
        if self.untold >= STEP {
            (self.read)(std::mem::take(&mut self.untold));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
