//! ISA-L in the place of our own decoder, for decoding in order beside helpers: it is faster, but goes only through whole
//! streams and says little of where it is. So it is begun in the middle: with the window as its dictionary, and with empty
//! blocks before the first one, which move that to the bit where it stands. And it is given no byte beyond the block that a
//! helper began with, so that it stops there; whether it stands before a block, and at which bit, its state tells. Called by
//! `parallel`.

use crate::crc::Crc;

use super::ahead::Ahead;
use super::job::Began;
use super::parallel::{InOrder, Jobs};
use super::{Inflater as _, Step, WRONG, cut_off, damaged};
use crate::deflate::{At, Decoder, Stop, WINDOW};
use crate::input::Input;
use crate::isal::Isal;
use crate::output::Output;
use crate::{Error, Options};

/// It goes on in such steps while a helper is looking for where to begin.
const LITTLE: u64 = 16 * 1024;

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
    let mut jobs = Jobs::new(&options.spare);
    let mut whole = Whole::new();
    whole.begin(0, 0, &[]).map_err(damaged)?;
    // From where a helper ended to the next block it goes on with our own decoder.
    let mut own: Option<Decoder> = None;
    let mut number = 0;
    let end = loop {
        let Some(region) = ahead.region(number)?.cloned() else { return Err(cut_off()) };
        let behind = region.last.unwrap_or(region.end);
        let over = own.as_ref().map_or(whole.given(), |decoder| decoder.bit() / 8) >= region.end;
        if over && region.last.is_none() {
            number += 1;
            ahead.forget(number);
            continue;
        }
        jobs.ask(&mut ahead, number)?;
        if let Some(decoder) = &mut own {
            if decoder.bit().div_ceil(8) > region.last.unwrap_or(u64::MAX) {
                return Err(cut_off());
            }
            if let Some(part) = jobs.part_at(decoder, number) {
                stream.carry_out(part.steps.get())?;
                *decoder = part.decoder;
                continue;
            }
            match decoder.at() {
                At::End => break decoder.bit().div_ceil(8),
                At::Block => {
                    let place = usize::try_from(decoder.bit() / 8 - region.start).ok();
                    let first = place.and_then(|place| region.data.get(place)).ok_or_else(cut_off)?;
                    whole.begin(decoder.bit(), *first, stream.history()).map_err(damaged)?;
                    own = None;
                }
                At::Codes { .. } | At::Stored { .. } => {
                    if stream.decode(decoder, &region)? == Stop::Input {
                        if region.last.is_some() {
                            return Err(cut_off());
                        }
                        number += 1;
                        ahead.forget(number);
                    }
                }
            }
            continue;
        }
        let began = jobs.first_began(number, whole.given());
        let to = match began {
            Began::At(bit) => bit.div_ceil(8).min(behind),
            // A little, and then it may be known.
            Began::Looking => (whole.given() + LITTLE).min(behind),
            Began::Not => behind,
        };
        let part = |byte: u64| usize::try_from(byte - region.start).unwrap_or(usize::MAX);
        let data = &region.data[part(whole.given())..part(to)];
        let step = stream.step(&mut whole, data)?;
        if step.ended {
            break whole.given();
        }
        if step.read > 0 || step.written > 0 {
            continue;
        }
        if to > whole.given() {
            return Err(damaged("it does not go on"));
        }
        match began {
            // All that is before it is out: either it is there, or that was no block.
            Began::At(bit) => {
                if whole.before_block() != Some(bit) {
                    jobs.drop_first();
                } else if let Some(part) = jobs.first_part(bit) {
                    stream.carry_out(part.steps.get())?;
                    own = Some(part.decoder);
                }
            }
            _ if region.last.is_some() => return Err(cut_off()),
            _ => {
                number += 1;
                ahead.forget(number);
            }
        }
    };
    if ahead.region(number)?.is_some_and(|region| region.last.is_some_and(|last| end > last)) {
        return Err(cut_off());
    }
    ahead.give_back(end);
    Ok(())
}

impl InOrder<'_, '_> {
    /// Goes on with ISA-L into the buffer at hand.
    fn step(&mut self, whole: &mut Whole, data: &[u8]) -> Result<Step, Error> {
        self.make_room(1)?;
        let room = self.output.room()?;
        let step = whole.step(data, room).map_err(damaged)?;
        self.crc.update(&room[..step.written]);
        self.output.filled(step.written);
        Ok(step)
    }
}

/// A stream from a block in the middle on.
pub(super) struct Whole {
    isal: Isal,
    /// How many bytes of the stream it was given.
    given: u64,
}

/// An empty block with codes of its own, of 91 bits: with it every bit of a byte can be reached by empty blocks with the fixed
/// codes, of 10 bits each. The lengths of codes: of 255 literals none, of one literal, the end and one distance one bit.
fn odd(bits: &mut Prefix) {
    bits.put(0b100, 3);
    bits.put(0, 5);
    bits.put(0, 5);
    bits.put(14, 4);
    // Of the codes of lengths, the third (18: many zeros) and the last given (1) have one bit.
    for index in 0..18 {
        bits.put(u64::from(index == 2 || index == 17), 3);
    }
    // Code 0 is for a length of one, code 1 for zeros: 138 and 117 of them.
    bits.put(1, 1);
    bits.put(138 - 11, 7);
    bits.put(1, 1);
    bits.put(117 - 11, 7);
    bits.put(0, 3);
    // The end is the second code of one bit.
    bits.put(1, 1);
}

#[derive(Default)]
struct Prefix {
    bytes: Vec<u8>,
    count: u32,
}

impl Prefix {
    fn put(&mut self, value: u64, count: u32) {
        for i in 0..count {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= (((value >> i) & 1) as u8) << (self.count % 8);
            }
            self.count += 1;
        }
    }

    /// Empty blocks that end at this bit of a byte.
    fn ending_at(bit: u32) -> Self {
        let mut prefix = Self::default();
        if bit % 2 == 1 {
            odd(&mut prefix);
        }
        while prefix.count % 8 != bit {
            // Not the last block, fixed codes, the end.
            prefix.put(0b010, 3);
            prefix.put(0, 7);
        }
        prefix
    }
}

impl Whole {
    pub(super) fn new() -> Self {
        Self { isal: Isal::new(), given: 0 }
    }

    /// How many bytes of the stream it has been given.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Begins with the block at this bit, whose byte is `first`, and with this window.
    pub(super) fn begin(&mut self, bit: u64, first: u8, window: &[u8]) -> Result<(), &'static str> {
        self.isal.reset();
        self.isal.dictionary(&window[window.len().saturating_sub(WINDOW)..])?;
        let within = (bit % 8) as u32;
        let mut prefix = Prefix::ending_at(within);
        self.given = bit / 8;
        if within != 0 {
            if let Some(last) = prefix.bytes.last_mut() {
                *last |= first & !((1 << within) - 1);
            }
            self.given += 1;
        }
        let mut none = [0; 64];
        let step = self.isal.step(&prefix.bytes, &mut none)?;
        // Without codes of the stream itself there is nothing to write, and it takes what it gets.
        if step.read == prefix.bytes.len() && step.written == 0 { Ok(()) } else { Err(WRONG) }
    }

    /// Goes on with the stream's next bytes.
    pub(super) fn step(&mut self, data: &[u8], room: &mut [u8]) -> Result<Step, &'static str> {
        let step = self.isal.step(data, room)?;
        self.given = self.given + step.read as u64 - step.ahead.1 as u64;
        Ok(step)
    }

    /// The bit of the block that it stands before, if it does.
    pub(super) fn before_block(&self) -> Option<u64> {
        Some(self.given * 8 - u64::from(self.isal.bits_before_block()?))
    }
}
