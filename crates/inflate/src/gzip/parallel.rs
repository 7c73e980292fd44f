//! One deflate stream on several cores. The caller's thread decodes in order; while there are idle cores and memory, helpers
//! (`job`) decode further on, without the window before, into steps. When the decoding in order stands before the very block
//! with which a helper began, it carries out what that one has made by then, which takes a third of the time, and goes
//! on where the helper is: the helper begins again further on. One that began at what is no block of this stream is never
//! met, and its work is dropped. So the output is by construction that of decoding everything in order, and nobody ever
//! waits for anybody. Without helpers this is just a decoder. Called by `gzip` for streams that are large.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::crc::Crc;

use super::ahead::{Ahead, Region};
use super::board::Board;
use super::job::{Began, Job, Part};
use super::{WRONG, cut_off, damaged};
use crate::deflate::{At, Decoder, Done, MARGIN, Plain, Steps, Stop, WINDOW, Wrong};
use crate::input::Input;
use crate::output::Output;
use crate::{Error, Options, Spare};

/// So many jobs at most at one time, done or not.
const JOBS: usize = 16;
/// So many regions for helpers that go on beyond theirs.
const BEYOND: usize = 2;
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
    let mut jobs = Jobs::new(&options.spare);
    let mut number = 0;
    loop {
        let Some(region) = ahead.region(number)?.cloned() else { return Err(cut_off()) };
        if region.last.is_some_and(|end| decoder.bit() > end * 8) {
            return Err(cut_off());
        }
        if decoder.bit() >= region.end * 8 && region.last.is_none() {
            number += 1;
            ahead.forget(number);
            continue;
        }
        jobs.ask(&mut ahead, number)?;
        if let Some(part) = jobs.part_at(&decoder, number) {
            stream.carry_out(part.steps.get())?;
            decoder = part.decoder;
            if decoder.at() == At::End {
                break;
            }
            continue;
        }
        match stream.decode(&mut decoder, &region)? {
            Stop::End => break,
            Stop::Input if region.last.is_some() => return Err(cut_off()),
            // What is wanted is behind the overlap.
            Stop::Input => {
                number += 1;
                ahead.forget(number);
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
    spare: Arc<dyn Spare>,
    board: Arc<Board>,
    /// The one that is being met.
    met: Option<Job>,
    /// The others, by their regions.
    running: VecDeque<Job>,
    /// The next region to be put on the board.
    next: usize,
}

impl Jobs {
    pub(super) fn new(spare: &Arc<dyn Spare>) -> Self {
        let board = Board::new(spare);
        Self { spare: Arc::clone(spare), board, met: None, running: VecDeque::new(), next: 0 }
    }

    /// Finds helpers for the regions ahead, as many as there are idle cores and memory for.
    pub(super) fn ask(&mut self, ahead: &mut Ahead<'_, '_>, number: usize) -> Result<(), Error> {
        while ahead.grown() && self.running.len() < JOBS {
            let nobody = self.met.is_none() && self.running.is_empty();
            // One region at least is for the one who decodes in order.
            let (from, enough) = if nobody { (number + 2, 1) } else { (number + 1, BEYOND) };
            let mut left = self.board.left_from(from);
            self.next = self.next.max(from);
            while left < enough {
                if let Some(region) = ahead.at_hand(self.next) {
                    self.board.put(self.next, region.clone());
                    self.next += 1;
                    left += 1;
                } else if !ahead.more(&*self.spare)? {
                    break;
                }
            }
            let Some((number, region)) = self.board.take_first() else { break };
            let (job, work) = Job::new(number, region.clone(), &self.board);
            if self.spare.helper(work).is_err() {
                self.board.put_back(number, region);
                if nobody {
                    self.board.shrink();
                }
                break;
            }
            self.running.push_back(job);
        }
        Ok(())
    }

    /// The next part of what a helper made who began where the decoder stands, or who is being met; those who began before it,
    /// or nowhere, are told to stop.
    pub(super) fn part_at(&mut self, decoder: &Decoder, number: usize) -> Option<Part> {
        if let Some(part) = self.next_part() {
            return Some(part);
        }
        while let Some(job) = self.running.front() {
            if job.region > number {
                return None;
            }
            let missed = match job.began() {
                Began::Not => true,
                Began::Looking => job.region < number,
                Began::At(bit) if bit == decoder.bit() && decoder.at() == At::Block => return self.first_part(bit),
                Began::At(bit) => bit < decoder.bit(),
            };
            if !missed {
                return None;
            }
            self.running.pop_front();
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
            match job.began() {
                Began::At(bit) if bit.div_ceil(8) < byte => {}
                Began::Looking if job.region < number => {}
                Began::Not => {}
                began => return began,
            }
            self.running.pop_front();
        }
        Began::Not
    }

    /// The first part of what the first helper made, who began at this bit, where the decoding in order is now.
    pub(super) fn first_part(&mut self, bit: u64) -> Option<Part> {
        self.met = self.running.pop_front().filter(|job| job.meet(bit));
        self.next_part()
    }

    /// The next part of the one that is being met. Where it is not there yet, the helper is overtaken from now on.
    fn next_part(&mut self) -> Option<Part> {
        let part = self.met.as_ref().and_then(Job::next);
        if part.is_none() {
            self.met = None;
        }
        part
    }

    /// Does without the first helper.
    #[cfg(feature = "isal")]
    pub(super) fn drop_first(&mut self) {
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
    pub(super) fn decode(&mut self, decoder: &mut Decoder, region: &Region) -> Result<Stop, Error> {
        self.make_room(2 * MARGIN)?;
        let (buffer, at) = self.output.buffer();
        let own = &mut buffer[self.start..];
        let from = at - self.start;
        let out = Plain::new(own, from, &self.window);
        let (out, stop) = decoder.decode(&region.data, region.start, out).map_err(|Wrong| {
            // The zeros behind its end are none of it.
            let behind = region.last.is_some_and(|end| decoder.bit() > end * 8);
            if behind { cut_off() } else { damaged(WRONG) }
        })?;
        let to = out.at();
        self.crc.update(&own[from..to]);
        self.output.filled(to - from);
        Ok(stop)
    }

    /// Carries out what a helper made.
    pub(super) fn carry_out(&mut self, steps: &Steps) -> Result<(), Error> {
        let mut done = Done::default();
        while !steps.all(done) {
            self.make_room(2 * MARGIN)?;
            let (buffer, at) = self.output.buffer();
            let own = &mut buffer[self.start..];
            let from = at - self.start;
            let to = steps.carry_out(&mut done, own, from, &self.window).map_err(|Wrong| damaged(WRONG))?;
            self.crc.update(&own[from..to]);
            self.output.filled(to - from);
        }
        Ok(())
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
}
