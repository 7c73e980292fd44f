//! Gzip (RFC 1952): members one after the other, each with its header, a deflate stream, and its CRC and length. Nothing else
//! may stand between or after them: neither garbage nor zeros, which Go's reader, and so containerd without helper
//! programs, refuses as well. Called by [`crate::run`].

mod ahead;
mod board;
mod header;
mod job;
mod parallel;
#[cfg(feature = "isal")]
mod whole;

use std::io;

use crate::crc::Crc;
use bytes::Bytes;

use crate::input::Input;
use crate::output::Output;
use crate::zlib::ZlibRs;
use crate::{Error, GzipBackend, Options};

/// What one step of an inflater did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Bytes of the input that are used.
    read: usize,
    /// Bytes of the output that are filled.
    written: usize,
    /// Whether the deflate stream is over; the input after what was read is not part of it.
    ended: bool,
    /// What belongs before the input that is left, since it was read ahead from inputs before this one.
    ahead: ([u8; 8], usize),
}

impl Step {
    /// So much was read and written, and it goes on.
    pub(crate) fn new(read: usize, written: usize) -> Self {
        Self { read, written, ended: false, ahead: ([0; 8], 0) }
    }

    /// The stream is over, and these last bytes (eight at most) of what was read are not part of it.
    pub(crate) fn end(&mut self, ahead: &[u8]) {
        self.ended = true;
        let here = ahead.len().min(self.read);
        self.read -= here;
        let before = &ahead[..ahead.len() - here];
        self.ahead.0[..before.len()].copy_from_slice(before);
        self.ahead.1 = before.len();
    }
}

/// Something that inflates raw deflate streams.
pub(crate) trait Inflater {
    /// Goes on as long as there are input and room.
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, &'static str>;
    /// Forgets all, for the next member.
    fn reset(&mut self);
}

const NAME: &str = "the gzip stream";
/// All that inflaters say of a stream which is none.
pub(crate) const WRONG: &str = "its deflate stream is wrong";

fn damaged(what: &str) -> Error {
    Error::Corrupt(NAME, io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

fn cut_off() -> Error {
    Error::Corrupt(NAME, io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"))
}

/// Inflates all members.
pub(crate) fn inflate(input: &mut Input<'_>, output: &mut Output<'_>, options: &Options) -> Result<(), Error> {
    let mut inflater: Box<dyn Inflater> = match options.gzip {
        GzipBackend::ZlibRs => Box::new(ZlibRs::new()),
        #[cfg(feature = "isal")]
        GzipBackend::Isal => Box::new(crate::isal::Isal::new()),
    };
    let parallel = options.parallel
        && options.compressed_size >= options.parallel_from
        && output.room()?.len() >= parallel::LEAST_BUFFER;
    loop {
        header::skip(input)?;
        let mut crc = Crc::default();
        match options.gzip {
            _ if !parallel => body(input, output, &mut *inflater, &mut crc)?,
            GzipBackend::ZlibRs => parallel::body(input, output, options, &mut crc)?,
            #[cfg(feature = "isal")]
            GzipBackend::Isal => whole::body(input, output, options, &mut crc)?,
        }
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
            let (ahead, len) = step.ahead;
            if len > 0 {
                input.give_back([Bytes::copy_from_slice(&ahead[..len])].into_iter());
            }
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
