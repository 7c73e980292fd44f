//! Gzip (RFC 1952): members one after the other, each with its header, a deflate stream, and its CRC and length. Nothing else
//! may stand between or after them: neither garbage nor zeros, which Go's reader, and so containerd without helper
//! programs, refuses as well. zlib-rs decompresses from the input straight into the room of the output. Called by [`super::run`].

use std::io;

use flate2::{Decompress, FlushDecompress, Status};

use super::input::Input;
use super::output::Output;
use super::stream::Error;

const STREAM: &str = "the gzip stream";

// Flags of a header (RFC 1952, 2.3.1).
const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

fn damaged(what: &str) -> Error {
    Error::Corrupt(STREAM, io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

fn cut_off() -> Error {
    Error::Corrupt(STREAM, io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"))
}

/// More than the memory of a decoder: its window of 32 KiB, and its tables.
const DECODER_BYTES: usize = 64 << 10;

/// Makes a decoder. zlib-rs panics if there is no memory for it, so the memory is requested here first.
fn new_decoder() -> Result<Decompress, Error> {
    let mut memory: Vec<u8> = Vec::new();
    let reserved = memory.try_reserve_exact(DECODER_BYTES);
    reserved.map_err(|error| Error::Source(io::Error::new(io::ErrorKind::OutOfMemory, error)))?;
    // The request must not be optimised away.
    drop(std::hint::black_box(memory));
    Ok(Decompress::new(false))
}

/// Decompresses all members.
pub(crate) fn inflate(input: &mut Input<'_>, output: &mut Output<'_>) -> Result<(), Error> {
    let mut decoder = new_decoder()?;
    loop {
        header(input)?;
        let crc = body(input, output, &mut decoder)?;
        trailer(input, &crc)?;
        if input.fill()?.is_empty() {
            return Ok(());
        }
        decoder.reset(false);
    }
}

/// Checks a member's header and skips it; the name and the time in it are not used.
fn header(input: &mut Input<'_>) -> Result<(), Error> {
    let mut crc = Crc::default();
    let head = input.at_least(10)?;
    let start = &head[..head.len().min(3)];
    if !start.is_empty() && start != &[0x1f, 0x8b, 8][..start.len()] {
        return Err(damaged("what follows its end is no gzip"));
    }
    let Some(&[_, _, _, flags, ..]) = head.first_chunk::<10>() else { return Err(cut_off()) };
    if flags & RESERVED != 0 {
        return Err(damaged("its header has unknown flags"));
    }
    skip(input, 10, &mut crc)?;
    if flags & EXTRA != 0 {
        let Some(&len) = input.at_least(2)?.first_chunk() else { return Err(cut_off()) };
        skip(input, 2 + usize::from(u16::from_le_bytes(len)), &mut crc)?;
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            skip_text(input, &mut crc)?;
        }
    }
    if flags & HEADER_CRC != 0 {
        let Some(&declared) = input.at_least(2)?.first_chunk() else { return Err(cut_off()) };
        if u32::from(u16::from_le_bytes(declared)) != crc.sum() & 0xffff {
            return Err(damaged("the checksum of its header is another"));
        }
        input.consume(2);
    }
    Ok(())
}

fn skip(input: &mut Input<'_>, mut amount: usize, crc: &mut Crc) -> Result<(), Error> {
    while amount > 0 {
        let bytes = input.fill()?;
        let n = bytes.len().min(amount);
        if n == 0 {
            return Err(cut_off());
        }
        crc.update(&bytes[..n]);
        input.consume(n);
        amount -= n;
    }
    Ok(())
}

/// Skips text and the NUL that ends it.
fn skip_text(input: &mut Input<'_>, crc: &mut Crc) -> Result<(), Error> {
    loop {
        let bytes = input.fill()?;
        if bytes.is_empty() {
            return Err(cut_off());
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        let n = end.map_or(bytes.len(), |at| at + 1);
        crc.update(&bytes[..n]);
        input.consume(n);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Decompresses one deflate stream; returns the checksum and length of its output.
fn body(input: &mut Input<'_>, output: &mut Output<'_>, decoder: &mut Decompress) -> Result<Crc, Error> {
    let mut crc = Crc::default();
    loop {
        let data = input.fill()?;
        let room = output.room()?;
        let before = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress(data, room, FlushDecompress::None)
            .map_err(|_| damaged("its deflate stream is wrong"))?;
        let since = |now: u64, before: u64| usize::try_from(now - before).expect("at most the length of a slice");
        let (read, written) = (since(decoder.total_in(), before.0), since(decoder.total_out(), before.1));
        let ended = matches!(status, Status::StreamEnd);
        if read == 0 && written == 0 && !ended {
            return Err(if data.is_empty() { cut_off() } else { damaged("it does not go on") });
        }
        crc.update(&room[..written]);
        input.consume(read);
        output.filled(written);
        if ended {
            return Ok(crc);
        }
    }
}

/// Checks the checksum and the length that a member ends with.
fn trailer(input: &mut Input<'_>, crc: &Crc) -> Result<(), Error> {
    let Some(&[a, b, c, d, e, f, g, h]) = input.at_least(8)?.first_chunk() else { return Err(cut_off()) };
    if u32::from_le_bytes([a, b, c, d]) != crc.sum() {
        return Err(damaged("its checksum is another"));
    }
    if u32::from_le_bytes([e, f, g, h]) != crc.amount() {
        return Err(damaged("its length is another"));
    }
    input.consume(8);
    Ok(())
}

/// The checksum and the length of all bytes so far, which a gzip member ends with. Computed by `crc32fast`: zlib-rs's own
/// takes three times as long, a sixth of the whole decompression.
#[derive(Clone, Default)]
struct Crc {
    hasher: crc32fast::Hasher,
    amount: u32,
}

impl Crc {
    fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        // RFC 1952 counts the length modulo 2^32.
        self.amount = self.amount.wrapping_add(u32::try_from(bytes.len() & 0xffff_ffff).expect("32 bits"));
    }

    fn sum(&self) -> u32 {
        self.hasher.clone().finalize()
    }

    /// Returns the length in bytes, modulo 2^32.
    fn amount(&self) -> u32 {
        self.amount
    }
}

#[cfg(test)]
#[path = "gzip_tests.rs"]
mod tests;
