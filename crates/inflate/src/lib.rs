//! A layer's compressed bytes into its tar stream: from the chunks that came straight into the buffers of whoever reads.
//! It knows no network, no disk, no async, no digest; it decides nothing about how many layers run at once.
//! Called by image-service, on a thread that may block.
//!
//! What a blob is compressed with is told by its first bytes ([`detect`]) and never by its media type. Gzip may have many
//! members, zstd many frames; nothing but further members or frames may follow. Whatever is wrong with the stream is an
//! error, and no memory grows with what the stream says or holds.

mod crc;
mod deflate;
mod detect;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gzip;
mod input;
#[cfg(feature = "isal")]
mod isal;
mod output;
mod zlib;
mod zstandard;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub use crate::detect::{Compression, MAGIC, Unsupported, detect};
pub use crate::zstandard::WINDOW_FREE;

use crate::input::Input;
use crate::output::Output;

/// Length of the buffers that a [`Sink`] should hand out.
pub const BUFFER: usize = 256 * 1024;

/// What zstd windows are at most if nothing else is said: 2^27 bytes is what `zstd --long` makes by default.
pub const WINDOW_LOG_MAX: u32 = 27;

/// From this compressed length on several cores work on one gzip stream if nothing else is said.
pub const PARALLEL_FROM: u64 = 8 * 1024 * 1024;

/// Compressed bytes, in order.
pub trait Source {
    /// The next bytes, `None` at the end; blocks. Called on the thread that called [`run`], and not again after an error or
    /// the end.
    fn next(&mut self) -> io::Result<Option<Bytes>>;

    /// Whether the next call does not block: then it is worth to read ahead. To say so always is to wait now and then for bytes
    /// that are not needed yet.
    fn ready(&self) -> bool {
        true
    }
}

/// Where the tar stream goes: buffers of one length, which their owner uses again.
pub trait Sink {
    /// A buffer to fill; its length is what fits. May block.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped>;
    /// Hands over the first `len` bytes of a buffer. May block.
    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped>;
}

/// The reader has gone away; its own result says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the stream stopped")]
pub struct Stopped;

/// What is held while memory is in use; dropping it gives the memory back.
pub type Held = Box<dyn Send + Sync>;

/// Work for another core.
pub type Work = Box<dyn FnOnce() + Send>;

/// Idle cores and spare memory of the process. Both may say no at any time, and then work goes on without.
pub trait Spare: Send + Sync {
    /// Runs `work` on a core that is idle now, or gives it back at once. The work never blocks for long: it is over after some
    /// megabytes, or soon after nobody wants it any more.
    fn helper(&self, work: Work) -> Result<(), Work>;
    /// Memory that would be useful.
    fn memory(&self, bytes: usize) -> Option<Held>;
    /// Memory without which the stream cannot be read: waits for it, and where it is more than all there is, until nobody
    /// else has any.
    fn needed(&self, bytes: usize) -> Result<Held, Stopped>;
}

/// Nobody helps, and memory is not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Spare for Alone {
    fn helper(&self, work: Work) -> Result<(), Work> {
        Err(work)
    }

    fn memory(&self, _: usize) -> Option<Held> {
        None
    }

    fn needed(&self, _: usize) -> Result<Held, Stopped> {
        Ok(Box::new(()))
    }
}

/// Who inflates gzip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GzipBackend {
    /// zlib-rs, which needs nothing but a Rust compiler.
    #[cfg_attr(not(feature = "isal"), default)]
    ZlibRs,
    /// ISA-L, which is faster, and needs a C compiler, an assembler and autotools to be built.
    #[cfg(feature = "isal")]
    #[default]
    Isal,
}

impl GzipBackend {
    /// All that this build has.
    pub const ALL: &[Self] = &[
        Self::ZlibRs,
        #[cfg(feature = "isal")]
        Self::Isal,
    ];

    /// Whether a stream that may be helped with, and is not, takes no longer than one that may not: so with ISA-L, which goes
    /// on from any block. What zlib-rs cannot do our own decoder does in its place, which takes a quarter longer.
    #[must_use]
    pub fn keeps_pace(self) -> bool {
        match self {
            Self::ZlibRs => false,
            #[cfg(feature = "isal")]
            Self::Isal => true,
        }
    }
}

/// How to inflate.
#[derive(Clone)]
pub struct Options {
    /// Who inflates gzip.
    pub gzip: GzipBackend,
    /// Whether several cores may work on one gzip stream; see [`GzipBackend::keeps_pace`] and docs/performance.md.
    pub parallel: bool,
    /// … if it is so long, compressed, at least.
    pub parallel_from: u64,
    /// What else the process has to give.
    pub spare: Arc<dyn Spare>,
    /// Zstd frames whose window is more than two to the power of this are refused.
    pub window_log_max: u32,
    /// Length of the compressed stream, as far as it is known.
    pub compressed_size: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gzip: GzipBackend::default(),
            parallel: false,
            parallel_from: PARALLEL_FROM,
            spare: Arc::new(Alone),
            window_log_max: WINDOW_LOG_MAX,
            compressed_size: 0,
        }
    }
}

/// Why a stream was not inflated to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source's own error.
    #[error(transparent)]
    Source(io::Error),
    /// A compression that nobody can read here.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The compressed stream is damaged.
    #[error("inflate {0}")]
    Corrupt(&'static str, #[source] io::Error),
    /// Nobody reads any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Inflates all that `source` has into `sink`. `found` is told of the compression before the first buffer is asked for. The
/// end of the stream is not told to the sink: it is for the caller to do when this has returned well.
pub fn run(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    options: &Options,
    found: &mut dyn FnMut(Compression),
) -> Result<(), Error> {
    let mut input = Input::new(source);
    let compression = detect(input.at_least(MAGIC)?)?;
    found(compression);
    let mut output = Output::new(sink);
    match compression {
        Compression::Plain => loop {
            let bytes = input.fill()?;
            if bytes.is_empty() {
                break;
            }
            let n = output.write(bytes)?;
            input.consume(n);
        },
        Compression::Gzip => gzip::inflate(&mut input, &mut output, options)?,
        Compression::Zstd => zstandard::inflate(&mut input, &mut output, options)?,
    }
    Ok(output.flush()?)
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "parallel_tests.rs"]
mod parallel_tests;
