//! One deflate stream on several cores. The caller's thread decodes in order; while there are idle cores and memory, regions
//! further on are decoded by helpers (`job`), who do not know the window before them. When the decoding in order stands
//! before the very block with which a helper began, what that one made is taken over, its markers replaced by what the window
//! has there, and decoding goes on where it ended. A helper that is not done yet is stopped and its part is taken; one
//! that began at what is no block of this stream is never met, and its work is dropped. So the output is by construction
//! that of decoding everything in order, and nobody ever waits for more than a moment. Without helpers this is just a
//! decoder. Called by `gzip` for streams that are large.

use std::collections::VecDeque;

use crate::crc::Crc;

use super::ahead::Ahead;
use super::job::{Began, Chunk, Job, MEMORY};
use super::{WRONG, cut_off, damaged};
use crate::deflate::{At, Decoder, MARGIN, MARKER, Stop, WINDOW};
use crate::input::Input;
use crate::output::Output;
use crate::{Error, Options, Spare};

/// So many jobs at most at one time, done or not.
const JOBS: usize = 16;
/// Buffers below this are not decoded into.
pub(super) const LEAST_BUFFER: usize = 16 * 1024;

/// Inflates what follows a member's header, to the end of the deflate stream.
pub(super) fn body(
    input: &mut Input<'_>,
    output: &mut Output<'_>,
    options: &Options,
    crc: &mut Crc,
) -> Result<(), Error> {
    output.room()?;
    let mut stream = InOrder::new(output, crc);
    let mut ahead = Ahead::new(input);
    let mut decoder = Decoder::new(0);
    let mut jobs = Jobs::new();
    let mut number = 0;
    loop {
        let Some(region) = ahead.region(number)?.cloned() else { return Err(cut_off()) };
        if region.last.is_some_and(|end| decoder.bit() > end * 8) {
            return Err(cut_off());
        }
        if decoder.bit() >= region.end * 8 && region.last.is_none() {
            number += 1;
            ahead.forget(number);
            jobs.look_again();
            continue;
        }
        jobs.ask(&mut ahead, number, &*options.spare)?;
        if let Some(chunk) = jobs.begins(&decoder, number)
            && stream.window_is_whole()
        {
            decoder = stream.take_over(*chunk)?;
            if decoder.at() == At::End {
                break;
            }
            continue;
        }
        match stream.decode(&mut decoder, &region.data, region.start)? {
            Stop::End => break,
            Stop::Input if region.last.is_some() => return Err(cut_off()),
            // What is wanted is behind the overlap.
            Stop::Input => {
                number += 1;
                ahead.forget(number);
                jobs.look_again();
            }
            Stop::Block | Stop::Room => {}
        }
    }
    let end = decoder.bit().div_ceil(8);
    // What was behind the end of the input was zeros of our own.
    if ahead.region(number)?.is_some_and(|region| region.last.is_some_and(|last| end > last)) {
        return Err(cut_off());
    }
    ahead.give_back(end);
    Ok(())
}

/// What goes on beside the decoding in order.
pub(super) struct Jobs {
    /// By their regions.
    running: VecDeque<Job>,
    /// The first region that nobody was asked to decode.
    next: usize,
    /// Whether helpers were asked for since there was a reason.
    asked: bool,
}

impl Jobs {
    pub(super) fn new() -> Self {
        Self { running: VecDeque::new(), next: 0, asked: false }
    }

    /// There is a reason to ask for helpers again.
    pub(super) fn look_again(&mut self) {
        self.asked = false;
    }

    /// Finds helpers for the regions ahead, as many as there are idle cores and memory for.
    pub(super) fn ask(&mut self, ahead: &mut Ahead<'_, '_>, number: usize, spare: &dyn Spare) -> Result<(), Error> {
        if self.asked || !ahead.grown() {
            return Ok(());
        }
        self.asked = true;
        while self.running.len() < JOBS {
            // One region at least is for the one who decodes in order.
            let wanted = self.next.max(number + if self.running.is_empty() { 2 } else { 1 });
            let Some(memory) = spare.memory(MEMORY) else { break };
            let Some(region) = ahead.region(wanted)?.cloned() else { break };
            let (job, work) = Job::new(wanted, region, memory);
            if spare.helper(work).is_err() {
                break;
            }
            self.running.push_back(job);
            self.next = wanted + 1;
        }
        Ok(())
    }

    /// What a helper made from where the decoder stands.
    pub(super) fn begins(&mut self, decoder: &Decoder, number: usize) -> Option<Box<Chunk>> {
        while let Some(job) = self.running.front() {
            if job.region > number {
                return None;
            }
            let missed = job.region < number || {
                match job.began() {
                    Began::Not => true,
                    Began::Looking => false,
                    Began::At(bit) if bit == decoder.bit() && decoder.at() == At::Block => {
                        self.asked = false;
                        return self.running.pop_front().and_then(Job::take);
                    }
                    Began::At(bit) => bit < decoder.bit(),
                }
            };
            if !missed {
                return None;
            }
            self.running.pop_front();
            self.asked = false;
        }
        None
    }

    /// Where a helper began in this region, at or after this byte; jobs that began before, or nowhere, are dropped.
    #[cfg(feature = "isal")]
    pub(super) fn first_began(&mut self, number: usize, byte: u64) -> Began {
        while let Some(job) = self.running.front() {
            if job.region > number {
                break;
            }
            if job.region == number {
                match job.began() {
                    Began::At(bit) if bit.div_ceil(8) < byte => {}
                    Began::Not => {}
                    began => return began,
                }
            }
            self.drop_first();
        }
        Began::Not
    }

    /// What the first helper made.
    #[cfg(feature = "isal")]
    pub(super) fn take_first(&mut self) -> Option<Box<Chunk>> {
        self.look_again();
        self.running.pop_front().and_then(Job::take)
    }

    /// Does without the first helper.
    #[cfg(feature = "isal")]
    pub(super) fn drop_first(&mut self) {
        self.look_again();
        self.running.pop_front();
    }
}

/// The output in order.
pub(super) struct InOrder<'a, 'b> {
    pub(super) output: &'a mut Output<'b>,
    pub(super) crc: &'a mut Crc,
    /// The last of what was before the buffer that is being filled.
    window: Vec<u8>,
    /// Where in this buffer the stream begins, or goes on after the window.
    start: usize,
}

impl<'a, 'b> InOrder<'a, 'b> {
    pub(super) fn new(output: &'a mut Output<'b>, crc: &'a mut Crc) -> Self {
        let (_, start) = output.buffer();
        Self { output, crc, window: Vec::with_capacity(WINDOW), start }
    }

    /// Decodes into the buffer at hand.
    pub(super) fn decode(&mut self, decoder: &mut Decoder, data: &[u8], base: u64) -> Result<Stop, Error> {
        self.make_room(2 * MARGIN)?;
        let (buffer, at) = self.output.buffer();
        let own = &mut buffer[self.start..];
        let from = at - self.start;
        let (to, stop) = decoder.decode(data, base, own, from, &self.window).map_err(|_| damaged(WRONG))?;
        self.crc.update(&own[from..to]);
        self.output.filled(to - from);
        Ok(stop)
    }

    /// Puts what a helper made behind what there is, and answers where the helper ended.
    pub(super) fn take_over(&mut self, chunk: Chunk) -> Result<Decoder, Error> {
        self.keep_window();
        let (_, at) = self.output.buffer();
        self.start = at;
        let window: Box<[u8; WINDOW]> =
            self.window.clone().into_boxed_slice().try_into().map_err(|_| damaged(WRONG))?;
        let mut marked = &chunk.marked[..];
        while !marked.is_empty() {
            self.make_room(1)?;
            let room = self.output.room()?;
            let n = room.len().min(marked.len());
            resolve(&marked[..n], &window, &mut room[..n]);
            self.crc.update(&room[..n]);
            self.output.filled(n);
            marked = &marked[n..];
        }
        let mut plain = &chunk.plain[..];
        while !plain.is_empty() {
            self.make_room(1)?;
            let n = self.output.write(plain)?;
            self.crc.update(&plain[..n]);
            plain = &plain[n..];
        }
        Ok(chunk.decoder)
    }

    /// Makes sure that so many more fit into the buffer.
    pub(super) fn make_room(&mut self, amount: usize) -> Result<(), Error> {
        let (buffer, at) = self.output.buffer();
        if buffer.len() - at < amount {
            self.keep_window();
            self.output.flush()?;
            self.output.room()?;
            self.start = 0;
        }
        Ok(())
    }

    /// The last of what there is.
    #[cfg(feature = "isal")]
    pub(super) fn history(&mut self) -> &[u8] {
        self.keep_window();
        let (_, at) = self.output.buffer();
        self.start = at;
        &self.window
    }

    /// Keeps the last of what there is as the window.
    fn keep_window(&mut self) {
        let (buffer, at) = self.output.buffer();
        let own = &buffer[self.start..at];
        let own = &own[own.len().saturating_sub(WINDOW)..];
        let beyond = (self.window.len() + own.len()).saturating_sub(WINDOW);
        self.window.drain(..beyond);
        self.window.extend_from_slice(own);
    }

    /// Whether there is as much before as a helper takes for granted.
    pub(super) fn window_is_whole(&mut self) -> bool {
        let (_, at) = self.output.buffer();
        self.window.len() + (at - self.start) >= WINDOW
    }
}

/// Bytes as they are, and what the window has for the markers; without a branch for each, because nothing foretells which it is.
fn resolve(marked: &[u16], window: &[u8; WINDOW], out: &mut [u8]) {
    const TOGETHER: usize = 32;
    let one = |symbol: u16| {
        let [low, high] = symbol.to_le_bytes();
        let from_window = window[usize::from(symbol & !MARKER)];
        let mask = 0_u8.wrapping_sub(high >> 7);
        (from_window & mask) | (low & !mask)
    };
    let (many, rest) = marked.as_chunks::<TOGETHER>();
    let (many_out, rest_out) = out.as_chunks_mut::<TOGETHER>();
    for (from, to) in many.iter().zip(many_out) {
        if from.iter().fold(0, |all, symbol| all | symbol) < MARKER {
            for (symbol, to) in from.iter().zip(to) {
                *to = symbol.to_le_bytes()[0];
            }
        } else {
            for (symbol, to) in from.iter().zip(to) {
                *to = one(*symbol);
            }
        }
    }
    for (symbol, to) in rest.iter().zip(rest_out) {
        *to = one(*symbol);
    }
}
