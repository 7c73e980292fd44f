//! Gzip (RFC 1952): members one after the other, each with its header, a deflate stream, and its CRC and length. Nothing else
//! may stand between or after them: neither garbage nor zeros, which Go's reader, and so containerd without helper
//! programs, refuses as well. Called by [`crate::run`].

mod header;

use std::io;

use flate2::Crc;

use crate::input::Input;
use crate::output::Output;
use crate::zlib::ZlibRs;
use crate::{Error, GzipBackend, Options};

/// What one step of an inflater did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Bytes of the input that are used.
    pub(crate) read: usize,
    /// Bytes of the output that are filled.
    pub(crate) written: usize,
    /// Whether the deflate stream is over; the input after what was read is not part of it.
    pub(crate) ended: bool,
}

/// Something that inflates raw deflate streams.
pub(crate) trait Inflater {
    /// Goes on as long as there are input and room.
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, &'static str>;
    /// Forgets all, for the next member.
    fn reset(&mut self);
}

const NAME: &str = "the gzip stream";

fn damaged(what: &str) -> Error {
    Error::Corrupt(NAME, io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

fn cut_off() -> Error {
    Error::Corrupt(NAME, io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"))
}

/// Inflates all members.
pub(crate) fn inflate(input: &mut Input<'_>, output: &mut Output<'_>, options: &Options) -> Result<(), Error> {
    match options.gzip {
        GzipBackend::ZlibRs => members(input, output, &mut ZlibRs::new()),
    }
}

fn members(input: &mut Input<'_>, output: &mut Output<'_>, inflater: &mut dyn Inflater) -> Result<(), Error> {
    loop {
        header::skip(input)?;
        let mut crc = Crc::new();
        body(input, output, inflater, &mut crc)?;
        trailer(input, &crc)?;
        if input.fill()?.is_empty() {
            return Ok(());
        }
        inflater.reset();
    }
}

fn body(
    input: &mut Input<'_>,
    output: &mut Output<'_>,
    inflater: &mut dyn Inflater,
    crc: &mut Crc,
) -> Result<(), Error> {
    loop {
        let data = input.fill()?;
        let room = output.room()?;
        let step = inflater.step(data, room).map_err(damaged)?;
        if step.read == 0 && step.written == 0 && !step.ended {
            return Err(if data.is_empty() { cut_off() } else { damaged("it does not go on") });
        }
        crc.update(&room[..step.written]);
        input.consume(step.read);
        output.filled(step.written);
        if step.ended {
            return Ok(());
        }
    }
}

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
