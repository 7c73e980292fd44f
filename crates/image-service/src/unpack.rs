//! Unpacking of one layer, compressed bytes to files, on one thread or two. The first verifies the blob and inflates; when its buffers are
//! full it starts a second one that reads the tar stream in place and writes files, and when they never are, which is so for
//! a small layer, it does that itself afterwards. Both digests are taken by whichever of them waits. The second sees the end
//! of the stream only after the first has verified the blob, so that nothing unverified is ever a whole layer. It knows no
//! network and no image. Called by the layer job.

use base::lock::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::inflate::{Compression, MemoryShare, Sink, Stopped};
use cri_api::{Error, Result};
use oci::{Algorithm, Digest};
use store::{Lease, Store, TarError, UnpackError, UnpackedLayer};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::background;
use crate::background::Background;
use crate::budgets::MemoryBudget;
use crate::error::{self, cancelled};
use crate::hashing::Chore;
use crate::intake::{self, InflateError, Intake};
use crate::options::Limits;
use crate::ring::{LEAST, Progress, RingReader, RingWriter, TarHash, ring};

/// Progress is reported after this many bytes of a tar stream. Small enough for a slow disk, where it takes a second.
const PROGRESS_STEP: u64 = 8 << 20;
/// Memory in addition to the window and the ring: the decoder, the tar reader, the recipe's compressor, the
/// connection's buffer.
const WORKSPACE: usize = 1 << 20;

/// The least memory that a layer of so many compressed bytes needs.
pub(crate) fn least(size: u64) -> usize {
    let window = usize::try_from(size).unwrap_or(usize::MAX).min(intake::WINDOW as usize);
    window + LEAST * crate::inflate::BUFFER + WORKSPACE
}

/// Parts of the engine that the threads of a layer work with.
#[derive(Clone)]
pub(crate) struct UnpackContext {
    pub(crate) background: Background,
    pub(crate) budget: MemoryBudget,
    pub(crate) store: Store,
    pub(crate) lease: Arc<background::BlockingDrop<Lease>>,
    pub(crate) limits: Limits,
    /// Ends the work soon.
    pub(crate) token: CancellationToken,
}

impl UnpackContext {
    /// Waits for the memory of a decoder's window.
    fn reserve_window(&self, bytes: usize) -> std::result::Result<MemoryShare, Stopped> {
        let wait = self.token.run_until_cancelled(self.budget.window(bytes));
        self.background.block_on(wait).map(|share| Box::new(share) as MemoryShare).ok_or(Stopped)
    }
}

/// A layer to make.
pub(crate) struct Task {
    pub(crate) context: UnpackContext,
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    /// Of the diff id that is wanted.
    pub(crate) algorithm: Algorithm,
    /// Receives the number of bytes of the tar stream that have been unpacked.
    pub(crate) progress: Box<dyn Fn(u64) + Send>,
}

/// A layer and the digest of its tar stream.
pub(crate) type Untarred = Result<(UnpackedLayer, Digest)>;

/// How both sides ended.
pub(crate) struct Outcome {
    pub(crate) inflated: std::result::Result<(), InflateError>,
    pub(crate) untarred: Second,
}

/// The second side.
pub(crate) enum Second {
    /// Ran on the first one's thread.
    Done(Box<Untarred>),
    /// Runs on a thread of its own.
    Running(oneshot::Receiver<Untarred>),
}

impl Second {
    /// Waits for its end.
    pub(crate) async fn join(self) -> Untarred {
        match self {
            Self::Done(result) => *result,
            Self::Running(thread) => thread.await.unwrap_or_else(|_| Err(error::thread_lost())),
        }
    }
}

impl Task {
    /// First side: verify, inflate, fill the ring; and the second one where that needs no thread of its own.
    pub(crate) fn run(self, mut intake: Intake) -> Outcome {
        let Self { context, blob, size, algorithm, progress } = self;
        let hash = Arc::new(TarHash::new(algorithm));
        let chores = [Arc::clone(&hash) as Arc<dyn Chore>, intake.chore()];
        intake.add_chore(Arc::clone(&chores[0]));
        let progress = Progress::every(PROGRESS_STEP, progress);
        let (mut writer, reader) = ring(&context.budget, &chores, progress);
        writer.hash_with(&hash);
        // The stream of a plain blob is the blob, whose digest is verified when the stream ends: it is not hashed again.
        let plain = (blob.algorithm() == algorithm).then_some(blob);
        let same = plain.is_some();
        let found = Findings::default();
        let untar =
            Untar { context: context.clone(), size, reader, hash: Arc::clone(&hash), plain, found: Arc::clone(&found) };
        // Taken by the first of the two: the writer when the ring is full, or the end of this function.
        let second = Arc::new(Mutex::new(Start::Not(Box::new(untar))));
        let (starting, background) = (Arc::clone(&second), context.background.clone());
        writer.start_with(move || Start::start(&starting, &background));
        let inflated = inflate(intake, writer, size, &context, (&hash, same), &found);
        let second = std::mem::replace(&mut *second.lock(), Start::Gone);
        let untarred = match (second, &inflated) {
            (Start::Running(thread), _) => Second::Running(thread),
            (Start::Not(untar), Ok(())) => Second::Done(Box::new(untar.run())),
            (Start::Not(_), Err(_)) => Second::Done(Box::new(Err(cancelled()))),
            (Start::Failed(error), _) => Second::Done(Box::new(Err(error))),
            (Start::Gone, _) => Second::Done(Box::new(Err(error::thread_lost()))),
        };
        Outcome { inflated, untarred }
    }
}

/// Where the second side is.
enum Start {
    Not(Box<Untar>),
    Running(oneshot::Receiver<Untarred>),
    /// Failed, since no thread could be started. Its end of the ring is gone, so that the first side stops.
    Failed(Error),
    Gone,
}

impl Start {
    fn start(this: &Mutex<Self>, background: &Background) {
        let mut state = this.lock();
        *state = match std::mem::replace(&mut *state, Self::Gone) {
            Self::Not(untar) => match background.on_own_thread("layer-write", move || untar.run()) {
                Ok(answer) => Self::Running(answer),
                Err(error) => Self::Failed(error::no_thread("writes a layer", &error)),
            },
            other => other,
        };
    }
}

/// Facts that one side finds and the other one needs.
type Findings = Arc<StreamFindings>;

#[derive(Default)]
struct StreamFindings {
    /// The compression, which the first side finds before the first buffer.
    compression: OnceLock<Compression>,
    /// Set by the second side before it stops: the tar stream is malformed.
    is_malformed: AtomicBool,
}

fn inflate(
    mut intake: Intake,
    mut writer: RingWriter,
    size: u64,
    context: &UnpackContext,
    hash: (&TarHash, bool),
    found: &Findings,
) -> std::result::Result<(), InflateError> {
    let limit = context.limits.inflated(size);
    let reserve = |bytes| context.reserve_window(bytes);
    let options = crate::inflate::Options { reserve: &reserve, ..crate::inflate::Options::default() };
    let mut bounded = Bounded { writer: &mut writer, left: limit, over: 0 };
    let pumped = pump(&mut intake, &mut bounded, &options, hash, found);
    let pumped = match bounded.over {
        0 => pumped,
        over => Err(InflateError::Bomb { compressed: size, limit, seen: limit.saturating_add(over) }),
    };
    let result = match pumped {
        Ok(()) => intake.finish().map_err(InflateError::from),
        // The digest shows whether the host sent other bytes or the image itself is damaged. The rest of the blob must
        // be read for it, and the descriptor's size bounds that.
        Err(error) if is_undecodable(&error, found) => match intake.finish() {
            Ok(()) => Err(error),
            Err(wrong) => Err(wrong.into()),
        },
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => writer.end().map_err(|Stopped| InflateError::UnpackStopped),
        Err(error) => {
            writer.fail(io::Error::other("the blob is not good"));
            Err(error)
        }
    }
}

/// Returns true if the bytes up to here cannot be decoded, whichever side found that.
fn is_undecodable(error: &InflateError, found: &StreamFindings) -> bool {
    match error {
        InflateError::Stream(crate::inflate::Error::Corrupt(..)) => true,
        InflateError::UnpackStopped => found.is_malformed.load(Ordering::Acquire),
        _ => false,
    }
}

fn pump(
    intake: &mut Intake,
    writer: &mut Bounded<'_>,
    options: &crate::inflate::Options<'_>,
    (hash, plain): (&TarHash, bool),
    found: &Findings,
) -> std::result::Result<(), InflateError> {
    let mut detected = |compression| {
        found.compression.get_or_init(|| compression);
        if compression == Compression::Plain && plain {
            hash.forgo();
        }
    };
    Ok(crate::inflate::run(intake, writer, options, &mut detected)?)
}

/// A ring that takes so many bytes at most.
struct Bounded<'a> {
    writer: &'a mut RingWriter,
    left: u64,
    /// The number of bytes beyond the limit.
    over: u64,
}

impl Sink for Bounded<'_> {
    fn buffer(&mut self) -> std::result::Result<Vec<u8>, Stopped> {
        self.writer.buffer()
    }

    fn send(&mut self, buffer: Vec<u8>, len: usize) -> std::result::Result<(), Stopped> {
        let Some(left) = self.left.checked_sub(len as u64) else {
            self.over = len as u64 - self.left;
            return Err(Stopped);
        };
        self.left = left;
        self.writer.send(buffer, len)
    }
}

/// Second side: hash and unpack.
struct Untar {
    context: UnpackContext,
    /// Bytes of the blob.
    size: u64,
    reader: RingReader,
    hash: Arc<TarHash>,
    /// The blob's digest, where it would be that of a plain stream.
    plain: Option<Digest>,
    found: Findings,
}

impl Untar {
    fn run(self) -> Untarred {
        let Self { context: UnpackContext { store, lease, limits, token, .. }, size, mut reader, hash, plain, found } =
            self;
        let ingest = store.new_layer(&lease).map_err(|e| error::from_store(store.root(), &e))?;
        let ingest = ingest.of_blob(size, limits.entries(size));
        let unpacked = ingest.unpack(&mut reader, &|| token.is_cancelled());
        let layer = unpacked.map_err(|error| {
            if let UnpackError::Archive(TarError::Truncated { .. } | TarError::Malformed { .. }) = &error {
                // Before the reader is dropped, which stops the first side.
                found.is_malformed.store(true, Ordering::Release);
            }
            error::from_unpack(store.root(), &error)
        })?;
        let diff_id = match plain {
            Some(blob) if found.compression.get() == Some(&Compression::Plain) => blob,
            _ => hash.finish().ok_or_else(error::thread_lost)?,
        };
        Ok((layer, diff_id))
    }
}
