//! Decompression of a layer's blob into its tar stream, from the chunks as they arrive straight into the reader's buffers.
//! Knows no network, no disk, no async and no digest, and starts no thread. Called by `crate::unpack` and by imports, on a thread
//! that may block.
//!
//! The first bytes of a blob say how it is compressed (`detect`), never its media type. Gzip may have many members, zstd many
//! frames; nothing else may follow. Anything wrong with the stream is an error, and memory grows neither with what the stream
//! declares nor with what it holds.

mod detect;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod gzip;
mod input;
mod output;
mod stream;
mod zstandard;

pub use self::detect::{Compression, MAGIC, Unsupported, detect};
pub use self::stream::{
    BUFFER, Error, MemoryShare, Options, Reserve, Sink, Source, Stopped, WINDOW_FREE, WINDOW_LOG_MAX,
};

use self::input::Input;
use self::output::Output;

/// Decompresses all of `source` into `sink`. `detected` is called with the compression before the first buffer is
/// requested. The caller reports the end to the sink's reader, after this has returned `Ok`.
pub fn run(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    options: &Options<'_>,
    detected: &mut dyn FnMut(Compression),
) -> Result<(), Error> {
    let mut input = Input::new(source);
    let compression = detect(input.at_least(MAGIC)?)?;
    detected(compression);
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
        Compression::Gzip => gzip::inflate(&mut input, &mut output)?,
        Compression::Zstd => zstandard::inflate(&mut input, &mut output, options)?,
    }
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests;
