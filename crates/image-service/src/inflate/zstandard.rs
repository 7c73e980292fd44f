//! Zstandard (RFC 8878): frames one after the other, skippable ones among them, each with a window that its header names.
//! Memory for a window above [`WINDOW_FREE`] is reserved before the decoder allocates it, and a window above the limit is refused. A
//! frame must have as many bytes as its header declares: the library checks that for some inputs only. Nothing but frames may
//! follow.
//! Called by [`super::run`].

use std::io;

use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::input::Input;
use super::output::Output;
use super::stream::{Error, MemoryShare, Options, WINDOW_FREE};

const NAME: &str = "the zstd stream";
/// Magic, descriptor, window, dictionary, content size.
const HEADER_MAX: usize = 4 + 1 + 1 + 4 + 8;

fn wrong(error: io::Error) -> Error {
    Error::Corrupt(NAME, error)
}

fn cut_off() -> Error {
    wrong(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"))
}

/// Decompresses all frames.
pub(crate) fn inflate(input: &mut Input<'_>, output: &mut Output<'_>, options: &Options<'_>) -> Result<(), Error> {
    // Declared before the decoder so that it outlives it: the decoder keeps the window that it has made.
    let mut reserved: Option<(usize, MemoryShare)> = None;
    let mut decoder = decoder(options)?;
    loop {
        let head = input.at_least(HEADER_MAX)?;
        if head.is_empty() {
            return Ok(());
        }
        let FrameHeader { window, content } = header(head).unwrap_or_default();
        let limit = 1_u64.checked_shl(options.window_log_max).unwrap_or(u64::MAX);
        if window > WINDOW_FREE as u64 && window <= limit {
            let window = usize::try_from(window).unwrap_or(usize::MAX);
            if reserved.as_ref().is_none_or(|(bytes, _)| *bytes < window) {
                // A smaller window is freed first: a job that waits for memory must not hold what others wait for.
                decoder = self::decoder(options)?;
                drop(reserved.take());
                reserved = Some((window, (options.reserve)(window)?));
            }
        }
        let written = frame(input, output, &mut decoder)?;
        if let Some(content) = content.filter(|content| *content != written) {
            let text = format!("a frame of {written} bytes says that it has {content}");
            return Err(wrong(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
    }
}

fn decoder(options: &Options<'_>) -> Result<Decoder<'static>, Error> {
    let mut decoder = Decoder::new().map_err(wrong)?;
    decoder.set_parameter(DParameter::WindowLogMax(options.window_log_max)).map_err(wrong)?;
    Ok(decoder)
}

/// Decompresses one frame; returns how many bytes came out. Given a whole frame at once, the library takes another path, which
/// accepts and refuses other empty blocks. So it is never given a whole frame: what is accepted must not depend on how the
/// bytes are cut into chunks.
fn frame(input: &mut Input<'_>, output: &mut Output<'_>, decoder: &mut Decoder<'_>) -> Result<u64, Error> {
    let mut written = 0;
    // One byte first, so that the library never gets a whole frame.
    let mut most = 1;
    loop {
        let data = input.fill()?;
        let data = &data[..data.len().min(most)];
        most = usize::MAX;
        let room = output.room()?;
        let status = decoder.run_on_buffers(data, room).map_err(wrong)?;
        let stuck = data.is_empty() && status.bytes_written == 0;
        input.consume(status.bytes_read);
        output.filled(status.bytes_written);
        written += status.bytes_written as u64;
        if status.remaining == 0 {
            return Ok(written);
        }
        if stuck {
            return Err(cut_off());
        }
    }
}

/// The header of a frame (RFC 8878, 3.1.1.1).
#[derive(Debug, Default, PartialEq)]
struct FrameHeader {
    window: u64,
    /// Length of the content in bytes, where the header declares one.
    content: Option<u64>,
}

/// Parses a header; `None` for a skippable frame and for anything else.
fn header(head: &[u8]) -> Option<FrameHeader> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = head else { return None };
    let single_segment = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let field = rest.get(usize::from(!single_segment) + dictionary..)?;
    let content = match descriptor >> 6 {
        0 if single_segment => Some(u64::from(*field.first()?)),
        0 => None,
        1 => Some(u64::from(u16::from_le_bytes(*field.first_chunk()?)) + 256),
        2 => Some(u64::from(u32::from_le_bytes(*field.first_chunk()?))),
        _ => Some(u64::from_le_bytes(*field.first_chunk()?)),
    };
    let window = match content {
        // The window spans the whole content.
        Some(content) if single_segment => content,
        _ => {
            let window = rest.first()?;
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * u64::from(window & 7)
        }
    };
    Some(FrameHeader { window, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        let says = |window, content| Some(FrameHeader { window, content });
        let cases: [(&[u8], Option<FrameHeader>); 9] = [
            (&[0x00, 0x00], says(1024, None)),
            (&[0x00, 0x59], says((1 << 21) + (1 << 18), None)),
            (&[0x20, 200], says(200, Some(200))),
            (&[0x61, 9, 1, 1], says(513, Some(513))),
            (&[0x41, 0x00, 9, 1, 1], says(1024, Some(513))),
            (&[0x80, 0x08, 1, 0, 0, 0], says(2048, Some(1))),
            (&[0xa0, 0, 0, 0, 1], says(1 << 24, Some(1 << 24))),
            (&[0xe0, 0, 0, 0, 0, 1, 0, 0, 0], says(1 << 32, Some(1 << 32))),
            (&[0xe0, 0, 0], None),
        ];
        for (rest, want) in cases {
            assert_eq!(header(&[&magic[..], rest].concat()), want, "{rest:?}");
        }
        assert_eq!(header(&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]), None);
        let one = zstd::bulk::compress(&[7; 1000], 3).unwrap();
        assert_eq!(header(&one), says(1000, Some(1000)));
    }
}
