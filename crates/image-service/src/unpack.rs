//! One layer through two threads: the first hashes the compressed bytes and inflates them, the second hashes the tar
//! stream and unpacks it, with a ring of buffers between. The second sees the end of the stream only after the first has
//! verified the blob, so that nothing unverified is ever a whole layer. It knows no network and no image.
//! Called by the layer job.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use inflate::{Compression, Sink, Source, Stopped, Unsupported};
use oci::{Algorithm, Digest, Hasher};
use store::{LayerIngest, UnpackError, UnpackedLayer};

use crate::intake::{Intake, IntakeError};
use crate::ring::{ReaderGone, RingReader, RingWriter};

/// Progress is told after so many more bytes of a tar stream. Small enough for a slow disk, where it takes a second.
const PROGRESS_STEP: u64 = 8 << 20;

/// What the first thread found wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InflateError {
    /// The blob is not what was promised.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// A compression that nobody can read here.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The compressed stream is damaged.
    #[error("inflate {0}")]
    Corrupt(&'static str, #[source] io::Error),
    /// The second thread stopped; its own result says why.
    #[error("the layer was given up")]
    UnpackStopped,
}

impl From<ReaderGone> for InflateError {
    fn from(_: ReaderGone) -> Self {
        Self::UnpackStopped
    }
}

/// What the first thread found out for the second: the compression, known before the first buffer.
pub(crate) type Found = Arc<OnceLock<Compression>>;

/// First thread: verify, inflate, fill the ring.
pub(crate) fn inflate(mut intake: Intake, mut ring: RingWriter, found: &Found) -> Result<(), InflateError> {
    let pumped = pump(&mut intake, &mut ring, found);
    let result = match pumped {
        Ok(()) => intake.finish().map_err(InflateError::from),
        // Bytes that do not inflate are most often not the bytes that were promised: the digest tells, at the end of what
        // is left, which the descriptor's size bounds.
        Err(corrupt @ InflateError::Corrupt(..)) => match intake.finish() {
            Err(wrong @ IntakeError::Verify(_)) => Err(wrong.into()),
            _ => Err(corrupt),
        },
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => Ok(ring.end()?),
        Err(error) => {
            ring.fail(io::Error::other("the blob is not good"));
            Err(error)
        }
    }
}

fn pump(intake: &mut Intake, ring: &mut RingWriter, found: &Found) -> Result<(), InflateError> {
    let options = inflate::Options::default();
    let done = inflate::run(intake, ring, &options, &mut |compression| {
        found.get_or_init(|| compression);
    });
    done.map_err(|error| match error {
        inflate::Error::Source(error) => match intake_error(&error) {
            Some(error) => InflateError::Intake(error),
            None => InflateError::Corrupt("the blob", error),
        },
        inflate::Error::Unsupported(unsupported) => InflateError::Unsupported(unsupported),
        inflate::Error::Corrupt(what, error) => InflateError::Corrupt(what, error),
        inflate::Error::Stopped(_) => InflateError::UnpackStopped,
    })
}

/// The intake's own error inside the source's.
fn intake_error(error: &io::Error) -> Option<IntakeError> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<IntakeError>()).cloned()
}

impl Source for Intake {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.chunk().map_err(io::Error::other)
    }
}

impl Sink for RingWriter {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        Self::buffer(self).map_err(|ReaderGone| Stopped)
    }

    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped> {
        Self::send(self, full, len).map_err(|ReaderGone| Stopped)
    }
}

/// Second thread: hash and unpack. Answers the layer and the digest of its tar stream. The stream of a plain blob is the
/// blob, whose digest the first thread has verified when the stream ends: it is not hashed again.
pub(crate) fn untar(
    ingest: LayerIngest,
    ring: RingReader,
    blob: &Digest,
    algorithm: Algorithm,
    found: &Found,
    cancelled: &dyn Fn() -> bool,
    progress: &dyn Fn(u64),
) -> Result<(UnpackedLayer, Digest), UnpackError> {
    let same = blob.algorithm() == algorithm;
    let mut stream = Hashed { ring, hasher: algorithm.hasher(), same, found, ahead: 0, done: 0, told: 0, progress };
    let layer = ingest.unpack(&mut stream, cancelled)?;
    let diff_id = if stream.is_blob() { blob.clone() } else { stream.hasher.finish() };
    Ok((layer, diff_id))
}

/// Hashes every buffer of the ring once, when it comes.
struct Hashed<'a> {
    ring: RingReader,
    hasher: Hasher,
    /// Whether blob and stream are to be hashed in the same way.
    same: bool,
    found: &'a Found,
    /// Bytes of the buffer at hand, all of them hashed, which nobody took yet.
    ahead: usize,
    done: u64,
    told: u64,
    /// Told of the bytes so far, now and then.
    progress: &'a dyn Fn(u64),
}

impl Hashed<'_> {
    fn is_blob(&self) -> bool {
        self.same && self.found.get() == Some(&Compression::Plain)
    }
}

impl BufRead for Hashed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.ahead == 0 && self.done - self.told >= PROGRESS_STEP {
            (self.progress)(self.done);
            self.told = self.done;
        }
        let bytes = self.ring.fill_buf()?;
        // Known by now: the compression is found out before the first buffer comes.
        let is_blob = self.same && self.found.get() == Some(&Compression::Plain);
        if !is_blob {
            self.hasher.update(&bytes[self.ahead..]);
        }
        self.ahead = bytes.len();
        Ok(bytes)
    }

    fn consume(&mut self, amount: usize) {
        self.ring.consume(amount);
        self.ahead -= amount;
        self.done += amount as u64;
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}
