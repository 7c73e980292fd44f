//! The two ends of a stream ([`Source`] and [`Sink`]), its limits, and why reading it may fail. Implemented by callers of this
//! crate, used by its decoders.

use std::io;

use bytes::Bytes;

use super::detect::Unsupported;

/// Recommended length in bytes of the buffers that a [`Sink`] hands out.
pub const BUFFER: usize = 256 * 1024;

/// Largest accepted zstd window by default, as a power of two: 128 MiB, what `zstd --long` makes.
pub const WINDOW_LOG_MAX: u32 = 27;

/// Memory of a zstd window, in bytes, that belongs to every job and is not reserved.
pub const WINDOW_FREE: usize = 8 * 1024 * 1024;

/// Compressed bytes, in order.
pub trait Source {
    /// Returns the next bytes, or `None` at the end; blocks. Called on the thread that called [`run`](super::run), and not again after an
    /// error or the end.
    fn next(&mut self) -> io::Result<Option<Bytes>>;
}

/// Receiver of the tar stream: lends buffers of one length and takes them back filled.
pub trait Sink {
    /// Returns a buffer to fill, whole. May block.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped>;
    /// Hands over the first `len` bytes of a buffer. May block.
    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped>;
}

/// The reader of the stream has gone away; its own result says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the stream stopped")]
pub struct Stopped;

/// A share of a memory budget; dropping it gives the memory back.
pub type MemoryShare = Box<dyn Send + Sync>;

/// Waits for so many bytes of memory. A request beyond the whole budget is granted once no other stream has any.
pub type Reserve<'a> = &'a dyn Fn(usize) -> Result<MemoryShare, Stopped>;

/// Limits of one stream.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Reserves the memory of a zstd window above [`WINDOW_FREE`].
    pub reserve: Reserve<'a>,
    /// Zstd frames with a window above two to the power of this are refused.
    pub window_log_max: u32,
}

impl Default for Options<'_> {
    /// No budget of memory, and [`WINDOW_LOG_MAX`].
    fn default() -> Self {
        Self { reserve: &|_| Ok(Box::new(())), window_log_max: WINDOW_LOG_MAX }
    }
}

/// Why a stream was not decompressed to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The error that the source returned.
    #[error(transparent)]
    Source(io::Error),
    /// A compression that image layers may not have.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The compressed stream is damaged.
    #[error("inflate {0}")]
    Corrupt(&'static str, #[source] io::Error),
    /// The sink stopped taking bytes.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
